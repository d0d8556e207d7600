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


def test_new_site_reports_every_event() -> None:
    fresh = site()
    assert fresh.add() == (Report(HITS, 0, 1, 1),)
    assert fresh.add() == (Report(HITS, 0, 2, 2),)


def test_site_reports_only_at_points_of_its_trigger() -> None:
    quiet = site(EveryNth(10))
    assert [quiet.add() for _ in range(9)] == [()] * 9
    assert quiet.add() == (Report(HITS, 0, 10, 1),)


def test_batch_is_one_report_at_its_last_point() -> None:
    assert site(EveryNth(10)).add(37) == (Report(HITS, 0, 30, 3),)


def test_add_of_zero_reports_nothing() -> None:
    assert site().add(0) == ()


@pytest.mark.parametrize("n", [-1, 1.0, "1", None, True])
def test_invalid_add_changes_nothing(n: int) -> None:
    careful = site(EveryNth(2), count=3)
    before = state(careful)
    with pytest.raises(InvalidParameter, match="n = "):
        careful.add(n)
    assert state(careful) == before


def test_count_of_a_site_never_falls() -> None:
    careful = site(count=5)
    with pytest.raises(InvalidParameter, match="count = 4"):
        careful.advance(4)
    assert careful.count == 5


def test_start_round_is_answered_with_the_present_count() -> None:
    busy = site(EveryNth(10))
    busy.add(25)
    assert busy.receive(StartRound(HITS, 1, OffsetMultiple(10, 7))) == (Snapshot(HITS, 1, 25),)
    assert busy.add(2) == (Report(HITS, 1, 27, 1),)


def test_crossings_restart_at_zero_in_a_new_round() -> None:
    busy = site()
    busy.add(5)
    busy.receive(StartRound(HITS, 1, EveryNth(1)))
    assert busy.add() == (Report(HITS, 1, 6, 1),)


def test_duplicate_start_round_resends_snapshot_and_report() -> None:
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


def test_set_trigger_continues_at_the_known_count() -> None:
    busy = site(EveryNth(100))
    busy.add(42)
    assert busy.receive(SetTrigger(HITS, 0, OffsetMultiple(50, 43), 0)) == ()
    assert busy.add() == (Report(HITS, 0, 43, 1),)


def test_set_trigger_reports_points_already_passed() -> None:
    busy = site(EveryNth(100))
    busy.add(42)
    assert busy.receive(SetTrigger(HITS, 0, EveryNth(10), 15)) == (Report(HITS, 0, 40, 3),)


def test_set_trigger_in_the_same_round_keeps_the_crossings() -> None:
    busy = site(EveryNth(10))
    busy.add(20)
    busy.receive(SetTrigger(HITS, 0, EveryNth(5), 20))
    assert busy.add(5) == (Report(HITS, 0, 25, 3),)


def test_set_trigger_of_a_later_round_restarts_the_crossings() -> None:
    late = site()
    late.add(3)
    assert late.receive(SetTrigger(HITS, 7, EveryNth(2), 1)) == (Report(HITS, 7, 2, 1),)
    assert late.resend() == (Snapshot(HITS, 7, 1), Report(HITS, 7, 2, 1))


def test_duplicate_set_trigger_is_ignored() -> None:
    busy = site(EveryNth(100))
    busy.add(42)
    message = SetTrigger(HITS, 0, EveryNth(10), 15)
    busy.receive(message)
    assert ignored(busy, message)


def test_overtaken_set_trigger_is_ignored() -> None:
    busy = site()
    busy.add(50)
    busy.receive(SetTrigger(HITS, 0, OffsetMultiple(20, 3), 40))
    assert ignored(busy, SetTrigger(HITS, 0, OffsetMultiple(20, 5), 30))


def test_set_trigger_overtaken_by_its_start_round_is_ignored() -> None:
    """Its StartRound was faster: the site has adopted the round at a later count than `from_count`."""
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
def test_message_against_the_protocol_changes_nothing(message: DownMessage, complaint: str) -> None:
    careful = site(count=5)
    before = state(careful)
    with pytest.raises(ProtocolError, match=complaint):
        careful.receive(message)
    assert state(careful) == before


def test_snapshot_has_the_exact_count() -> None:
    busy = site(EveryNth(100))
    busy.add(42)
    assert busy.snapshot() == Snapshot(HITS, 0, 42)


def test_repr_of_a_site_shows_count_round_and_trigger() -> None:
    assert repr(site(EveryNth(10), count=3)) == "<Site 'web-1' incarnation 0: 3 in 'hits', round 0, EveryNth(step=10)>"


@given(st.lists(st.integers(0, 10**30), max_size=20), st.floats(0.01, 0.4))
def test_geometric_growth_covers_the_count_by_the_last_report(adds: list[int], alpha: float) -> None:
    trigger = GeometricGrowth(alpha)
    busy, reported = Site(HITS, SiteId(1), SeededRandom(0), trigger=trigger), 0
    for n in adds:
        for message in busy.add(n):
            reported = message.count
        assert reported <= busy.count <= trigger.max_count_covered(reported)
