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
    owner.receive(A, Report("hits", 0, 5, 5))
    return owner


def test_state_is_saved_before_anything_is_sent(owner: Owner) -> None:
    assert owner.saved.saved_state == owner.coordinator.saved_state
    owner.restart()
    assert (owner.coordinator.published, owner.reported_by(A)) == (5, 5)


def test_new_incarnation_retires_the_old_one(owner: Owner) -> None:
    owner.join(SiteId("a", 1), Snapshot("hits", 0, 0))
    assert owner.retired_events == 5
    assert owner.coordinator.known_total == 5
    assert owner.coordinator.answer.sites == 2
    owner.receive(A, Report("hits", 0, 9, 9))  # was in flight
    assert owner.coordinator.known_total == 5


def test_late_join_of_an_old_incarnation_is_ignored(owner: Owner) -> None:
    owner.join(SiteId("a", 1), Snapshot("hits", 0, 0))
    assert owner.join(A, Snapshot("hits", 0, 5)) == []
    assert owner.current["a"] == SiteId("a", 1)


def test_repeated_leave_is_counted_once(owner: Owner) -> None:
    owner.leave(A, Snapshot("hits", 0, 7))
    owner.restart()
    assert owner.leave(A, Snapshot("hits", 0, 7)) == []
    assert owner.join(A, Snapshot("hits", 0, 7)) == []
    assert owner.coordinator.known_total == 7


def test_reports_of_unknown_sites_are_ignored_and_invalid_reports_of_members_raise(owner: Owner) -> None:
    assert owner.receive(SiteId("x"), Report("hits", 0, 1, 1)) == []
    with pytest.raises(ProtocolError):
        owner.receive(A, Report("hits", 3, 6, 1))
