"""Counters with windows at the coordinator: a window is opened by a Join, closed when its sites have left it."""

from dataclasses import replace

import pytest

from countless.core.answer import State
from countless.core.messages import Report, SetTrigger
from countless.core.periods.window import Window, WindowRule, WindowState
from countless.errors import InvalidParameter
from countless.server.http.answers.windows import window_answer
from countless.server.kinds.counter import WindowedCounter
from countless.server.sessions.periodic import MAX_AHEAD
from countless.server.settings import Config
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import (
    VERSION,
    CounterRejected,
    Hello,
    IncarnationRetired,
    Join,
    Leave,
    LeaveAck,
    Sync,
    SyncAck,
)
from countless.wire.keys import COUNTER
from support.hours import FIRST, HOUR, HourClock
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.stores import PausedStore


@pytest.fixture
def clock() -> HourClock:
    return HourClock()


def name(window: int, series: str = "requests") -> str:
    return f"{series}@hour:{FIRST + window}"


def counter(harness: SiteServerHarness, series: str = "requests") -> WindowedCounter:
    found = harness.server.counters[series]
    assert isinstance(found, WindowedCounter)
    return found


def windows(harness: SiteServerHarness, series: str = "requests") -> list[tuple[int, float, str]]:
    return [(each.period - FIRST, each.estimate, str(each.state)) for each in counter(harness, series).youngest()]


async def test_windows_follow_one_another_and_closed_ones_are_exact(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        received = await harness.send(session, connection, Join(name(0), 0, 3))
        assert [item.counter for item in received if isinstance(item, SetTrigger)] == [name(0)]
        assert list(harness.server.counters) == ["requests"]
        await harness.send(session, connection, Join(name(1), 0, 0))  # prepared before the edge
        assert windows(harness) == [(0, 3, "open"), (1, 0, "open")]
        clock.show(1)
        await harness.send(session, connection, Report(name(1), 0, 1, 1))
        await harness.advance(1)
        assert windows(harness) == [(0, 3, "incomplete"), (1, 1, "open")]
        assert counter(harness).youngest()[0].waiting == 1
        assert counter(harness).sites_waited_for(FIRST) == ["web"]
        assert await harness.send(session, connection, Leave(name(0), 0, 5)) == [LeaveAck(name(0))]
        await harness.advance(1)
        assert windows(harness) == [(0, 5, "closed"), (1, 1, "open")]
        start = int(FIRST * HOUR)
        assert counter(harness).youngest()[0] == Window(FIRST, start, start + 3600, 5, 5, 5, WindowState.CLOSED)
        assert counter(harness).published_answer.estimate == counter(harness).known_total == 6


async def test_closed_window_is_incomplete_while_an_earlier_one_is_open(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        stuck = await harness.connect("stuck")
        await harness.send(*stuck, Join(name(0), 0, 1))
        web = await harness.connect("web")
        await harness.send(*web, Join(name(1), 0, 5), Leave(name(1), 0, 5))
        clock.show(3)
        await harness.advance(1)
        assert windows(harness) == [(0, 1, "incomplete"), (1, 5, "incomplete"), (3, 0, "open")]
        assert len(counter(harness).open) == 1  # nothing but the total is kept of window 1
        assert counter(harness).sites_waited_for(FIRST + 1) == ["stuck"]
        assert counter(harness).complete_until == FIRST * HOUR
        absent = counter(harness).window(FIRST + 2)
        assert absent is not None
        assert (absent.upper, absent.state, absent.waiting) == (0, "incomplete", 1)
        await harness.send(*stuck, Leave(name(0), 0, 2), Join(name(1), 0, 3), Leave(name(1), 0, 3))
        await harness.advance(1)
        assert windows(harness) == [(0, 2, "closed"), (1, 8, "closed"), (3, 0, "open")]


async def test_retired_site_is_lost_to_every_window_it_may_have_counted_in(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(name(0), 0, 3), Leave(name(0), 0, 3), Join(name(1), 0, 4))
        harness.server.on_disconnect(session, connection)
        clock.show(3)
        await harness.advance(11)
        assert windows(harness) == [(0, 3, "closed"), (1, 4, "incomplete"), (3, 0, "open")]
        assert harness.server.drop_site("web") == 1
        await harness.advance(1)
        lost = [(each.period - FIRST, each.estimate, each.lost) for each in counter(harness).youngest()]
        assert lost == [(0, 3, 0), (1, 4, 1), (2, 0, 1), (3, 0, 1)]
        assert [str(each.state) for each in counter(harness).youngest()] == ["closed", *["incomplete"] * 2, "open"]
        again = FakeConnection()
        assert await harness.server.on_hello(again, Hello(VERSION, "web", 1)) is None
        assert again.received == [IncarnationRetired((("requests@hour", FIRST + 1), (name(1), 4)))]
    async with site_server(store, wall_clock=clock) as harness:
        assert [each.lost for each in counter(harness).youngest()] == [0, 1, 1, 1]


async def test_message_for_a_window_that_was_left_is_answered_with_leave_ack(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(name(0), 0, 3), Leave(name(0), 0, 3), Join(name(1), 0, 1))
        for item in (Join(name(0), 0, 3), Leave(name(0), 0, 3), Report(name(0), 0, 4, 1)):
            session.end_connection()
            assert await harness.send(session, connection, item) == [LeaveAck(name(0))]
    async with site_server(store, wall_clock=clock) as harness:  # also after a restart
        session, connection = await harness.connect("web")
        assert (await harness.send(session, connection, Join(name(0), 0, 3)))[-1] == LeaveAck(name(0))
        assert counter(harness).known_total == 4


async def test_site_without_windows_at_present_continues_its_incarnation(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(name(0), 0, 3), Leave(name(0), 0, 3))
        harness.server.on_disconnect(session, connection)
        assert len(harness.server.sessions) == 0
        session, connection = await harness.connect("web")
        assert (await harness.send(session, connection, Join(name(0), 0, 3)))[-1] == LeaveAck(name(0))
        await harness.send(session, connection, Join(name(1), 0, 2))
        assert counter(harness).known_total == 5


async def test_windows_beyond_keep_are_dropped_and_stay_in_the_total(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        harness.server.create("requests", Config(windows=WindowRule("hour", keep=2)))
        session, connection = await harness.connect("web")
        for window in range(5):
            clock.show(window)
            await harness.send(session, connection, Join(name(window), 0, 10), Leave(name(window), 0, 10))
            await harness.advance(1)
        assert windows(harness) == [(2, 10, "closed"), (3, 10, "closed"), (4, 10, "open")]
        assert (counter(harness).before, counter(harness).published_answer.estimate) == (20, 50)
        late, other = await harness.connect("app")
        await harness.send(late, other, Join(name(1), 0, 7))
        assert windows(harness)[0] == (2, 10, "incomplete")  # a part of a window is not shown as the window
        assert counter(harness).window(FIRST + 1) is None
        assert counter(harness).kept_from == (FIRST + 2) * HOUR
        await harness.send(late, other, Leave(name(1), 0, 7))
        await harness.advance(1)
        assert (counter(harness).before, counter(harness).published_answer.estimate) == (27, 57)
    async with site_server(store, wall_clock=clock) as harness:
        assert windows(harness) == [(2, 10, "closed"), (3, 10, "closed"), (4, 10, "open")]
        assert (counter(harness).before, counter(harness).published_answer.estimate) == (27, 57)


async def test_windows_far_ahead_are_few(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        received = await harness.send(
            session, connection, *(Join(name(window), 0, 1) for window in range(MAX_AHEAD + 3)), Join(name(-99), 0, 1)
        )
        [rejected] = [item for item in received if isinstance(item, CounterRejected)]
        assert rejected.counter == name(MAX_AHEAD + 2)
        assert "check the clock of the site" in rejected.reason


async def test_join_that_does_not_fit_the_rule_is_rejected_with_a_reason(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        harness.server.create("plain", Config())
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(name(0), 0, 1))
        for item, reason in {
            Join("requests", 0, 1): "count it with per='hour'",
            Join("requests@day:20000", 0, 1): r"Calendar('hour', 'UTC', 0), as counter 'requests' has them",
            Join(name(0, "plain"), 0, 1): "`countless counter set plain --per hour` starts some",
            Join("requests@hour,UTC,0:490000", 0, 1): "requests@hour:490000, as this window is called",
            Join("new@day,Europe/Nowhere,0:20000", 0, 1): "time zone",
            Join("new@hour:999999999999", 0, 1): "an integer",
        }.items():
            [answer] = await harness.send(session, connection, item)
            assert isinstance(answer, CounterRejected)
            assert reason in answer.reason
        assert sorted(harness.server.counters) == ["plain", "requests"]
        for config in (Config(), Config(windows=WindowRule("hour", anchor=30))):
            with pytest.raises(InvalidParameter, match="delete the counter"):
                harness.server.configure("requests", config)
        for taken in ("requests@hour", "new@hour:5"):
            with pytest.raises(InvalidParameter, match="a name that"):
                harness.server.create(taken, Config())


HOURLY = Config(windows=WindowRule("hour"))


async def test_counter_gets_windows_from_the_next_edge_on_and_keeps_its_total(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        old = await harness.connect("old")
        await harness.send(*old, Join("requests", 0, 0), Report("requests", 0, 2000, 2000))
        new = await harness.connect("new")
        *_, rejected = await harness.send(*new, Join(name(0), 0, 5))  # it waits, and tries again
        assert isinstance(rejected, CounterRejected)
        with pytest.raises(
            InvalidParameter, match="'requests' gets windows only while no site counts it: end 'old' first"
        ):
            harness.server.configure("requests", HOURLY)
        await harness.send(*old, Leave("requests", 0, 2000))
        harness.server.configure("requests", HOURLY)
        await harness.server.flush()
        total = counter(harness).published_answer
        assert (total.lower, total.estimate, total.upper, total.state) == (2000, 2000, 2000, State.EXACT)
        assert [type(item) for item in await harness.send(*new, Join(name(0), 0, 5))] == [SetTrigger]
        [refused] = await harness.send(*old, Join("requests", 0, 1))  # it has left; and what is new is refused
        assert refused == LeaveAck("requests")
        third = await harness.connect("third")
        *_, refused = await harness.send(*third, Join("requests", 0, 1))
        assert isinstance(refused, CounterRejected)
        assert "count it with per='hour'" in refused.reason
        now = window_answer(counter(harness), "now")
        assert (now.lower, now.estimate, now.upper, now.complete) == (0, 0, 2005, False)
        assert now.known_since == counter(harness).calendar.local_time(int((FIRST + 1) * HOUR))
        clock.show(1)
        await harness.send(*new, Join(name(1), 0, 3), Leave(name(0), 0, 7))
        await harness.advance(1)
        assert windows(harness) == [(1, 3, "open")]
        assert window_answer(counter(harness), "now").known_since is None
    clock.show(2)
    async with site_server(store, wall_clock=clock) as harness:
        new = await harness.connect("new")
        await harness.send(*new, Join(name(1), 0, 4), Leave(name(1), 0, 4))
        await harness.advance(1)
        assert windows(harness) == [(1, 4, "closed"), (2, 0, "open")]
        total = counter(harness).published_answer
        assert (total.estimate, total.state, counter(harness).before) == (2011, State.EXACT, 2007)
        last, today = window_answer(counter(harness), "last"), window_answer(counter(harness), "today")
        assert (last.estimate, last.complete, last.state, last.known_since) == (4, True, State.EXACT, None)
        assert (today.lower, today.upper) == (4, 2011)
        assert today.known_since == counter(harness).calendar.local_time(int((FIRST + 1) * HOUR))


async def test_exported_total_does_not_fall_when_windows_begin(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("requests", 0, 0), Report("requests", 0, 2000, 1000))
        plain = harness.server.counters["requests"]
        assert plain.largest_published > 2000
        await harness.send(session, connection, Leave("requests", 0, 2000))
        harness.server.configure("requests", HOURLY)
        assert counter(harness).largest_published == plain.largest_published
        await harness.server.flush()
        assert counter(harness).largest_published == plain.largest_published
        assert counter(harness).published_answer.estimate == 2000


async def test_windows_of_a_counter_are_shown_as_saved_only_once_they_are(clock: HourClock) -> None:
    store = PausedStore()
    async with site_server(store, wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("requests", 0, 0), Report("requests", 0, 2000, 1000))
        before = harness.server.counters["requests"].published_answer
        store.pause()
        harness.server.on_frame(session, connection, [Leave("requests", 0, 2010)], 10)
        harness.server.configure("requests", HOURLY)
        shown = counter(harness).published_answer
        assert (shown.lower, shown.estimate, shown.upper) == (before.lower, before.estimate, before.upper)
        store.resume()
        await harness.server.flush()
        assert counter(harness).published_answer.estimate == 2010


async def test_labelled_series_get_windows_with_their_counter(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        harness.server.create("requests", Config(alpha=0.02))
        series = 'requests{route="/a"}'
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(series, 0, 0), Report(series, 0, 5, 5))
        with pytest.raises(InvalidParameter, match="end 'web' first"):
            harness.server.configure("requests", HOURLY)
        assert [each.spec.windows for each in harness.server.counters.values()] == [None, None]
        await harness.send(session, connection, Leave(series, 0, 5))
        harness.server.configure("requests", replace(HOURLY, alpha=0.05))
        await harness.send(session, connection, Join(name(1, series), 0, 0))
        clock.show(1)
        assert windows(harness, series) == [(1, 0, "open")]
        assert counter(harness, series).known_total == 5
        assert (counter(harness).spec.alpha, counter(harness, series).spec.alpha) == (0.05, 0.05)


async def test_series_beyond_the_cap_are_counted_in_windows_of_the_overflow_series(clock: HourClock) -> None:
    store, overflow = MemoryStore(), 'requests{overflow="true"}'
    series = [f'requests{{route="{number}"}}' for number in range(3)]
    async with site_server(store, wall_clock=clock, label_cap=1) as harness:
        session, connection = await harness.connect("web")
        for each in series:
            received = await harness.send(session, connection, Join(name(0, each), 0, 5))
            assert [item.counter for item in received if isinstance(item, SetTrigger)] == [name(0, each)]
        await harness.send(session, connection, *(Join(name(1, each), 0, 1) for each in series))
        assert sorted(harness.server.counters) == sorted([overflow, series[0]])
        assert harness.server.overflowed == {"requests": 2}
        clock.show(1)
        for each in series:
            await harness.send(session, connection, Leave(name(0, each), 0, 6), Report(name(1, each), 0, 2, 1))
        await harness.advance(1)
        assert windows(harness, overflow) == [(0, 12, "closed"), (1, 4, "open")]
    async with site_server(store, wall_clock=clock, label_cap=1) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, *(Join(name(1, each), 0, 3) for each in series))
        assert await harness.send(session, connection, Join(name(0, series[2]), 0, 3)) == [LeaveAck(name(0, series[2]))]
        await harness.send(session, connection, *(Leave(name(1, each), 0, 3) for each in series))
        assert windows(harness, overflow) == [(0, 12, "closed"), (1, 6, "open")]


async def test_windows_that_were_left_do_not_use_up_the_limits(clock: HourClock) -> None:
    async with site_server(wall_clock=clock, max_counters_per_site=2, max_counters=2) as harness:
        session, connection = await harness.connect("web")
        for window in range(20):
            clock.show(window)
            for each in ("requests", "errors"):
                joins = Join(name(window, each), 0, 1), Join(name(window + 1, each), 0, 0)
                received = await harness.send(session, connection, *joins, Leave(name(window, each), 0, 1))
                assert not any(isinstance(item, CounterRejected) for item in received)
            await harness.advance(1)
        assert session.names(COUNTER) == 2
        [rejected] = await harness.send(session, connection, Join("third", 0, 1))
        assert isinstance(rejected, CounterRejected)
        assert "max_counters_per_site" in rejected.reason


async def test_unreachable_session_in_a_window_that_is_not_kept_is_retired(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        harness.server.create("requests", Config(windows=WindowRule("hour", keep=2)))
        gone, connection = await harness.connect("gone")
        await harness.send(gone, connection, Join(name(0), 0, 3))
        harness.server.on_disconnect(gone, connection)
        web = await harness.connect("web")
        for window in range(5):
            clock.show(window)
            await harness.send(*web, Join(name(window), 0, 1), Leave(name(window), 0, 1))
            await harness.advance(11)
        await harness.advance(1)
        await harness.advance(1)
        assert [str(session.site_id.site) for session in harness.server.sessions] == ["web"]
        assert counter(harness).open.keys() == {FIRST + 4}
        assert counter(harness).published_answer.estimate == 8


async def test_published_total_never_falls_also_over_restarts(clock: HourClock) -> None:
    store = MemoryStore()
    config = Config(alpha=0.2, scheme="deterministic", windows=WindowRule("hour", floor=10_000))
    highest = 0.0
    for window in range(4):
        clock.show(window)
        async with site_server(store, wall_clock=clock) as harness:
            if window == 0:
                harness.server.create("requests", config)
            web = await harness.connect(f"web-{window}")
            await harness.send(*web, Join(name(window), 0, 1))
            await harness.send(*web, Leave(name(window), 0, 1))
            for _ in range(2):
                answer = counter(harness).published_answer
                assert answer.lower <= window + 1 <= answer.upper
                assert highest <= answer.estimate <= answer.upper
                highest = answer.estimate
                clock.show(window + 1)
                await harness.advance(1)


async def test_exported_total_does_not_fall_when_the_sites_of_an_open_window_leave_and_the_coordinator_restarts(
    clock: HourClock,
) -> None:
    """The window's answer becomes the exact total, which is less than the estimate was."""
    store = MemoryStore()
    config = Config(alpha=0.2, scheme="deterministic", windows=WindowRule("hour"))
    async with site_server(store, wall_clock=clock) as harness:
        harness.server.create("requests", config)
        web = await harness.connect("web")
        await harness.send(*web, Join(name(0), 0, 0))
        await harness.send(*web, Report(name(0), 0, 13, 9))
        largest = counter(harness).largest_published
        await harness.send(*web, Leave(name(0), 0, 13))
        assert counter(harness).published_answer.estimate == 13 < largest
    async with site_server(store, wall_clock=clock) as harness:
        assert counter(harness).largest_published >= largest


async def test_exported_total_is_the_same_after_a_restart_in_whatever_order_windows_were_opened(
    clock: HourClock,
) -> None:
    """A sum of doubles depends on their order; a total that is smaller by one digit is a restart for Prometheus."""
    store = MemoryStore()
    config = Config(alpha=0.2, scheme="deterministic", windows=WindowRule("hour"))
    async with site_server(store, wall_clock=clock) as harness:
        harness.server.create("requests", config)
        web = await harness.connect("web")
        for window, count in ((3, 14), (2, 11), (1, 12), (0, 13)):
            await harness.send(*web, Join(name(window), 0, 0))
            await harness.send(*web, Report(name(window), 0, count, 9))
        largest = counter(harness).largest_published
        summands = [each.largest for each in counter(harness).open.values()]
        assert sum(summands) != sum(reversed(summands))
    async with site_server(store, wall_clock=clock) as harness:
        assert counter(harness).largest_published == largest


async def test_readers_see_windows_only_once_they_are_saved(clock: HourClock) -> None:
    store = PausedStore()
    async with site_server(store, wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(name(0), 0, 3))
        clock.show(1)
        before = windows(harness)
        store.pause()
        items = Leave(name(0), 0, 5), Join(name(1), 0, 1)
        harness.server.on_frame(session, connection, list(items), 10)
        await store.save_waits()
        harness.server.tick()
        assert before == windows(harness) == [(0, 3, "incomplete"), (1, 0, "open")]
        assert counter(harness).published_answer.estimate == 3
        changed = counter(harness).changed
        store.resume()
        await harness.server.flush()
        assert windows(harness) == [(0, 5, "closed"), (1, 1, "open")]
        assert changed.is_set()


async def test_floor_is_that_of_the_last_closed_window_and_survives_a_restart(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(name(0), 0, 1000), Leave(name(0), 0, 1000))
        clock.show(1)
        await harness.advance(1)
        await harness.send(session, connection, Join(name(1), 0, 1))
        harness.server.configure("requests", Config(windows=WindowRule("hour", floor=7)))
        await harness.send(session, connection, Join(name(2), 0, 1))
    async with site_server(store, wall_clock=clock) as harness:
        trackers = counter(harness).open
        floors = {period - FIRST: tracker.coordinator.answer.floor for period, tracker in trackers.items()}
        assert floors == {1: 333, 2: 7}


async def test_sites_of_the_window_before_are_expected(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        for number in range(5):
            web = await harness.connect(f"web-{number}")
            await harness.send(*web, Join(name(0), 0, 1))
        await harness.send(*web, Join(name(1), 0, 0))
        assert counter(harness).open[FIRST + 1].coordinator.next_context.sites == 5


async def test_loss_of_a_window_that_is_dropped_stays_with_the_later_ones(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        harness.server.create("requests", Config(windows=WindowRule("hour", keep=2)))
        gone, connection = await harness.connect("gone")
        await harness.send(gone, connection, Join(name(0), 0, 3))
        web = await harness.connect("web")
        await harness.send(*web, Join(name(2), 0, 1))
        harness.server.on_disconnect(gone, connection)
        clock.show(2)
        await harness.advance(11)
        harness.server.drop_site("gone")
        for window in range(2, 5):
            clock.show(window)
            await harness.send(*web, Join(name(window), 0, 1), Leave(name(window), 0, 1))
            await harness.advance(1)
    async with site_server(store, wall_clock=clock) as harness:
        await harness.advance(1)
        lost = [(each.period - FIRST, each.lost, str(each.state)) for each in counter(harness).youngest()]
        assert lost == [(2, 1, "incomplete"), (3, 0, "closed"), (4, 0, "open")]


async def test_wrong_clock_of_the_coordinator_makes_few_windows_incomplete(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        harness.server.create("requests", Config(windows=WindowRule("hour", keep=3)))
        gone, connection = await harness.connect("gone")
        await harness.send(gone, connection, Join(name(0), 0, 3))
        harness.server.on_disconnect(gone, connection)
        clock.show(99_999)
        await harness.advance(11)
        harness.server.drop_site("gone")
        clock.show(10)
        await harness.advance(1)
        assert [each.period - FIRST for each in counter(harness).youngest() if each.lost] == [0, 1, 2, 3]


async def test_windows_of_a_span_are_listed(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        for window in (0, 1, 4):
            clock.show(window)
            await harness.send(session, connection, Join(name(window), 0, 1), Leave(name(window), 0, 1))
        clock.show(6)
        await harness.advance(1)

        def between(start: float, end: float) -> list[int]:
            span = counter(harness).windows_between((FIRST + start) * HOUR, (FIRST + end) * HOUR)
            return [window.period - FIRST for window in span]

        assert between(0, 7) == [0, 1, 4, 6]
        assert between(0.5, 4) == [0, 1]
        assert between(1, 4.5) == [1, 4]
        assert between(2, 3) == []
        assert [window.period - FIRST for window in counter(harness).youngest(2)] == [4, 6]
        assert counter(harness).youngest(0) == []


async def test_unreachable_sites_are_waited_for_in_the_open_window(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        gone, connection = await harness.connect("gone")
        await harness.send(gone, connection, Join(name(0), 0, 3))
        clock.show(1)
        assert counter(harness).youngest()[-1].waiting == 0
        harness.server.on_disconnect(gone, connection)
        await harness.advance(11)
        [old, present] = counter(harness).youngest()
        assert (old.state, old.waiting, present.state, present.waiting) == ("incomplete", 1, "open", 1)
        assert str(counter(harness).published_answer.state) == "degraded"


async def test_state_restored_from_an_older_copy_calls_the_windows_since_then_incomplete(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        web = await harness.connect("web")
        await harness.send(*web, Join(name(0), 0, 3))
        copy = MemoryStore()
        for second, part in store.snapshot().items():
            copy.save_at(part, second)
        for window in range(3):
            clock.show(window)
            await harness.send(*web, Join(name(window), 0, 3), Leave(name(window), 0, 3), Join(name(window + 1), 0, 0))
    clock.show(3)
    async with site_server(copy, wall_clock=clock) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(name(3), 0, 4))
        assert counter(harness).sites_waited_for(FIRST + 3) == ["web"]
        assert SyncAck(1) in await harness.send(session, connection, Sync(1))
        await harness.advance(1)
        states = [(each.period - FIRST, each.estimate, str(each.state)) for each in counter(harness).youngest()]
        assert states == [(0, 3, "incomplete"), (1, 0, "incomplete"), (2, 0, "incomplete"), (3, 4, "open")]
        assert (await harness.send(session, connection, Join(name(0), 0, 9)))[-1] == LeaveAck(name(0))
        assert counter(harness).known_total == 7


async def test_window_that_was_left_is_acknowledged_again_for_a_leave_that_follows_a_join() -> None:
    """The acknowledgement of the join comes too early for a site that has to leave an earlier window first."""
    async with site_server(wall_clock=HourClock()) as harness:
        names = [f"hits@hour:{FIRST - 1}", f"hits@hour:{FIRST}"]
        site = await harness.connect("a")
        for name in names:
            await harness.send(*site, Join(name, 0, 1), Leave(name, 0, 1))
        harness.server.on_disconnect(*site)
        site = await harness.connect("a")
        received = await harness.send(*site, *(Join(name, 0, 1) for name in reversed(names)))
        assert [item for item in received if isinstance(item, LeaveAck)] == [LeaveAck(name) for name in reversed(names)]
        assert await harness.send(*site, Leave(names[1], 0, 1)) == [LeaveAck(names[1])]
