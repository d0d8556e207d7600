"""The rules of a site, one test each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.messages import DownMessage, Report, SetTrigger, SiteId, Snapshot, StartRound
from countless.core.site import Site
from countless.core.triggers import EveryNth, GeometricGrowth, OffsetMultiple, Trigger
from countless.errors import InvalidParameter, ProtocolError
from countless.randomness import SeededRandom
from support.rng import NO_RANDOM

HITS = "hits"


def site(trigger: Trigger | None = None, count: int = 0) -> Site:
    return Site(HITS, SiteId("web-1"), NO_RANDOM, trigger=trigger, count=count)


def state(site: Site) -> tuple[object, ...]:
    return (site.count, site.round, site.crossings, site.next_at, site.trigger, site.resend())


def ignored(site: Site, message: DownMessage) -> bool:
    before = state(site)
    return site.receive(message) == () and state(site) == before


def test_a_new_site_reports_every_event() -> None:
    fresh = site()
    assert fresh.add() == (Report(HITS, 0, 1, 1),)
    assert fresh.add() == (Report(HITS, 0, 2, 2),)


def test_it_keeps_quiet_between_points() -> None:
    quiet = site(EveryNth(10))
    assert [quiet.add() for _ in range(9)] == [()] * 9
    assert quiet.add() == (Report(HITS, 0, 10, 1),)


def test_a_batch_is_one_report_that_ends_at_the_last_point() -> None:
    assert site(EveryNth(10)).add(37) == (Report(HITS, 0, 30, 3),)


def test_nothing_happened_is_nothing_said() -> None:
    assert site().add(0) == ()


@pytest.mark.parametrize("n", [-1, 1.0, "1", None, True])
def test_what_cannot_be_counted_changes_nothing(n: int) -> None:
    careful = site(EveryNth(2), count=3)
    before = state(careful)
    with pytest.raises(InvalidParameter, match="n = "):
        careful.add(n)
    assert state(careful) == before


def test_a_count_never_falls() -> None:
    careful = site(count=5)
    with pytest.raises(InvalidParameter, match="count = 4"):
        careful.advance(4)
    assert careful.count == 5


def test_start_round_is_adopted_at_the_present_count_and_answered() -> None:
    busy = site(EveryNth(10))
    busy.add(25)
    assert busy.receive(StartRound(HITS, 1, OffsetMultiple(10, 7))) == (Snapshot(HITS, 1, 25),)
    assert busy.add(2) == (Report(HITS, 1, 27, 1),)


def test_a_new_round_counts_crossings_from_zero() -> None:
    busy = site()
    busy.add(5)
    busy.receive(StartRound(HITS, 1, EveryNth(1)))
    assert busy.add() == (Report(HITS, 1, 6, 1),)


def test_a_repeated_start_round_gets_the_same_snapshot_and_what_may_have_been_lost() -> None:
    busy = site()
    busy.add(5)
    start = StartRound(HITS, 1, EveryNth(2))
    assert busy.receive(start) == (Snapshot(HITS, 1, 5),)
    busy.add(4)
    before = busy.next_at, busy.count
    assert busy.receive(start) == (Snapshot(HITS, 1, 5), Report(HITS, 1, 8, 2))
    assert (busy.next_at, busy.count) == before


@pytest.mark.parametrize(
    "old",
    [StartRound(HITS, 2, EveryNth(1)), SetTrigger(HITS, 2, EveryNth(1), 9), SetTrigger(HITS, 0, EveryNth(1), 0)],
)
def test_messages_of_earlier_rounds_are_ignored(old: DownMessage) -> None:
    busy = site()
    busy.receive(StartRound(HITS, 3, EveryNth(10)))
    busy.add(9)
    assert ignored(busy, old)


def test_repace_continues_from_what_the_coordinator_knows() -> None:
    busy = site(EveryNth(100))
    busy.add(42)
    assert busy.receive(SetTrigger(HITS, 0, OffsetMultiple(50, 43), 0)) == ()
    assert busy.add() == (Report(HITS, 0, 43, 1),)


def test_repace_reports_at_once_what_already_lies_behind() -> None:
    busy = site(EveryNth(100))
    busy.add(42)
    assert busy.receive(SetTrigger(HITS, 0, EveryNth(10), 15)) == (Report(HITS, 0, 40, 3),)


def test_repace_in_the_same_round_goes_on_counting_crossings() -> None:
    busy = site(EveryNth(10))
    busy.add(20)
    busy.receive(SetTrigger(HITS, 0, EveryNth(5), 20))
    assert busy.add(5) == (Report(HITS, 0, 25, 3),)


def test_repace_into_a_later_round_starts_them_anew() -> None:
    on_late_start = site()
    on_late_start.add(3)
    assert on_late_start.receive(SetTrigger(HITS, 7, EveryNth(2), 1)) == (Report(HITS, 7, 2, 1),)
    assert on_late_start.resend() == (Snapshot(HITS, 7, 1), Report(HITS, 7, 2, 1))


def test_a_repeated_repace_is_ignored() -> None:
    busy = site(EveryNth(100))
    busy.add(42)
    message = SetTrigger(HITS, 0, EveryNth(10), 15)
    busy.receive(message)
    assert ignored(busy, message)


def test_an_overtaken_repace_is_ignored() -> None:
    busy = site()
    busy.add(50)
    busy.receive(SetTrigger(HITS, 0, OffsetMultiple(20, 3), 40))
    assert ignored(busy, SetTrigger(HITS, 0, OffsetMultiple(20, 5), 30))


def test_a_repace_older_than_the_round_it_names_is_ignored() -> None:
    """Its StartRound was faster: the site has adopted the round at a later count than `since`."""
    busy = site()
    busy.add(50)
    busy.receive(StartRound(HITS, 1, EveryNth(10)))
    assert ignored(busy, SetTrigger(HITS, 1, EveryNth(10), 20))


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (StartRound("misses", 1, EveryNth(1)), "misses"),
        (SetTrigger("misses", 1, EveryNth(1), 0), "misses"),
        (SetTrigger(HITS, 1, EveryNth(1), 6), "knows 6"),
    ],
)
def test_what_the_protocol_forbids_changes_nothing(message: DownMessage, complaint: str) -> None:
    careful = site(count=5)
    before = state(careful)
    with pytest.raises(ProtocolError, match=complaint):
        careful.receive(message)
    assert state(careful) == before


def test_hello_and_farewell_are_exact() -> None:
    busy = site(EveryNth(100))
    busy.add(42)
    assert busy.snapshot() == Snapshot(HITS, 0, 42)


def test_repr_says_what_a_person_asks() -> None:
    assert repr(site(EveryNth(10), count=3)) == "<Site 'web-1' incarnation 0: 3 in 'hits', round 0, EveryNth(step=10)>"


@given(st.lists(st.integers(0, 10**30), max_size=20), st.floats(0.01, 0.4))
def test_a_growth_site_is_always_within_reach_of_its_last_report(adds: list[int], alpha: float) -> None:
    trigger = GeometricGrowth(alpha)
    busy, heard = Site(HITS, SiteId(1), SeededRandom(0), trigger=trigger), 0
    for n in adds:
        for message in busy.add(n):
            heard = message.count
        assert heard <= busy.count <= trigger.max_count_covered(heard)
