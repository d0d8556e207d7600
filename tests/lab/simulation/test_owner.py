"""What the owner of a coordinator must do, rule by rule."""

import pytest

from countless.core.coordinator import Coordinator, PersistentState
from countless.core.messages import Report, SiteId, Snapshot
from countless.errors import ProtocolError
from countless.lab.simulation.owner import Owner
from countless.randomness import SeededRandom
from countless.schemes.exact import Exact

A, B = SiteId("a"), SiteId("b")


def build(saved_state: PersistentState | None) -> Coordinator:
    fleet = () if saved_state else (A, B)
    return Coordinator("hits", Exact(), SeededRandom(1), alpha=0.1, delta=0.1, fleet=fleet, saved_state=saved_state)


@pytest.fixture
def owner() -> Owner:
    owner = Owner(build, [A, B])
    owner.hear(A, Report("hits", 0, 5, 5))
    return owner


def test_what_was_heard_is_saved_before_anything_is_sent(owner: Owner) -> None:
    assert owner.saved.saved_state == owner.coordinator.saved_state
    owner.restart()
    assert (owner.coordinator.published, owner.known(A)) == (5, 5)


def test_a_new_life_buries_the_old_one(owner: Owner) -> None:
    owner.hello(SiteId("a", 1), Snapshot("hits", 0, 0))
    assert owner.buried == 5
    assert owner.coordinator.known_total == 5
    assert owner.coordinator.answer.sites == 2
    owner.hear(A, Report("hits", 0, 9, 9))  # still under way when it died
    assert owner.coordinator.known_total == 5


def test_an_old_hello_does_not_bury_the_living(owner: Owner) -> None:
    owner.hello(SiteId("a", 1), Snapshot("hits", 0, 0))
    assert owner.hello(A, Snapshot("hits", 0, 5)) == []
    assert owner.lives["a"] == SiteId("a", 1)


def test_a_farewell_may_be_said_twice(owner: Owner) -> None:
    owner.farewell(A, Snapshot("hits", 0, 7))
    owner.restart()
    assert owner.farewell(A, Snapshot("hits", 0, 7)) == []
    assert owner.hello(A, Snapshot("hits", 0, 7)) == []  # it would be counted twice
    assert owner.coordinator.known_total == 7


def test_words_of_strangers_are_ignored_and_lies_of_members_are_not(owner: Owner) -> None:
    assert owner.hear(SiteId("x"), Report("hits", 0, 1, 1)) == []
    with pytest.raises(ProtocolError):
        owner.hear(A, Report("hits", 3, 6, 1))
