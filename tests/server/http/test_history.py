"""Histories for charts: bounded, sparse where they are old, and in two series that reveal nothing of each other."""

from bisect import bisect_right
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from countless.core.answer import State
from countless.core.messages import Report
from countless.core.periods.rolling import count_since
from countless.server.http.answers.increases import increases_of
from countless.server.http.history import history
from countless.server.http.history.history import Recorder
from countless.server.http.history.parts import by_counter
from countless.server.http.history.series import MAX_POINTS, TimeSeries
from countless.wire.frames import Join
from support.published import ALPHA, Published, Recording
from support.site_server import FakeConnection, SiteServerHarness, site_server


@pytest.mark.slow
def test_time_series_keeps_first_and_last_row_within_its_limit() -> None:
    series = TimeSeries(2)
    for second in range(100_000):
        series.add(float(second), float(second))
        assert len(series) <= MAX_POINTS
    times = [time for time, _ in series]
    assert (times[0], times[-1]) == (0, 99_999)
    assert times == sorted(times)
    assert times[-80:] == list(range(99_920, 100_000))  # recent rows are complete
    for age in (100, 1_000, 10_000, 90_000):  # and there are rows of every age
        assert any(abs(100_000 - time - age) <= age / 8 for time in times), age


def test_unchanged_row_is_not_added() -> None:
    series = TimeSeries(3)
    for second in range(1000):
        series.add(float(second), 7.0, 1.0)
    assert list(series) == [(0.0, 7.0, 1.0)]


async def test_recorder_keeps_history_until_the_counter_is_deleted() -> None:
    async with site_server() as harness:
        recorder = Recorder(harness.server, clock=lambda: harness.time, steady=lambda: harness.time)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 0))
        for second in range(1, 4):
            harness.time = float(second)
            await harness.send(session, connection, Report("hits", 0, second, second))
            recorder.tick()
            recorder.tick()
        past = recorder.for_counter(harness.server.counter("hits"))
        assert [row[:2] for row in past.points] == [(1, 1), (2, 2), (3, 3)]
        assert past.site_seconds == 2  # one site, from the first record to the last
        harness.server.delete("hits")
        recorder.tick()
        await harness.send(session, connection, Join("hits", 0, 0))
        again = recorder.for_counter(harness.server.counter("hits"))
        assert [row[1] for row in again.points] == [0]


@pytest.mark.parametrize("events", [2, 20], ids=["fewer", "more"])
async def test_counter_created_again_under_its_name_has_a_new_history(events: int) -> None:
    async with site_server() as harness:
        recorder = Recorder(harness.server, clock=lambda: harness.time, steady=lambda: harness.time)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 9))
        recorder.tick()
        harness.server.delete("hits")
        await harness.send(session, connection, Join("hits", 0, events))  # before the next record
        recorder.tick()
        assert [row[1] for row in recorder.for_counter(harness.server.counter("hits")).points] == [events]


@pytest.mark.parametrize("left", ["older", "younger"])
async def test_sum_has_a_new_history_when_one_of_its_series_is_deleted(left: str) -> None:
    """Its total falls, and events of the others are not to be missed until it is as large again."""
    names = ['hits{route="/a"}', 'hits{route="/b"}']
    kept, deleted = names if left == "older" else names[::-1]
    clock = 1_800_000_000.0
    async with site_server(scheme="exact", wall_clock=lambda: clock) as harness:
        recorder = Recorder(harness.server, clock=lambda: clock, steady=lambda: clock)
        session, connection = await harness.connect("web")
        for name in names:
            await harness.send(session, connection, Join(name, 0, 100))
            clock += 1
        recorder.tick()
        harness.server.delete(deleted)
        for events in range(2, 123, 2):
            clock += 1
            await harness.send(session, connection, Report(kept, 0, 100 + events, events))
            recorder.tick()
        hits = by_counter(harness.server.by_name)["hits"]
        rate = increases_of(hits, recorder.for_counter(hits)).rate()
        assert (rate["over"], rate["lower"], rate["upper"]) == (60, 2.0, 2.0)


def test_rolling_counts_of_totals_that_are_no_doubles_are_between_their_bounds() -> None:
    recording = Recording(1e9)
    for second in range(20):
        recording.time = 1e9 + second
        recording.counter.publish(2**53 + 3 * second, State.EXACT)
        records = recording.history.records()
        for ago in range(second):
            count = count_since(records, recording.time - ago)
            assert count.lower <= 3 * ago <= count.upper, (second, ago)


async def test_history_of_a_new_counter_begins_with_zero_when_it_was_created() -> None:
    async with site_server() as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 9))
        harness.server.counter("hits").traffic.began = 5.0
        harness.time = 6.0
        recorder = Recorder(harness.server, clock=lambda: harness.time, steady=lambda: harness.time)
        points = recorder.for_counter(harness.server.counter("hits")).points
        assert [row[:2] for row in points] == [(5, 0), (6, 9)]
        async with site_server(harness.store) as after:
            after.server.counter("hits").traffic.began = 5.0
            after.time = 6.0
            recorder = Recorder(after.server, clock=lambda: after.time, steady=lambda: after.time)
            assert [row[:2] for row in recorder.for_counter(after.server.counter("hits")).points] == [(6, 9)]


async def test_row_before_a_change_says_until_when_nothing_changed() -> None:
    async with site_server() as harness:
        recorder = Recorder(harness.server, clock=lambda: harness.time, steady=lambda: harness.time)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 9))
        for harness.time in range(5):
            recorder.tick()
        await harness.send(session, connection, Report("hits", 0, 11, 2))
        harness.time = 5.0
        points = recorder.for_counter(harness.server.counter("hits")).points
        assert [row[:2] for row in points] == [(0, 9), (4, 9), (5, 11)]


async def test_clock_that_is_put_back_leaves_records_as_old_as_they_were() -> None:
    async with site_server() as harness:
        clock, steady = 10_000.0, 0.0
        recorder = Recorder(harness.server, clock=lambda: clock, steady=lambda: steady)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 9))
        recorder.tick()
        clock, steady = clock + 60, steady + 60
        await harness.send(session, connection, Report("hits", 0, 11, 2))
        recorder.tick()
        clock, steady = clock - 3600 + 5, steady + 5
        history = recorder.for_counter(harness.server.counter("hits"))
        assert [clock - row[0] for row in history.points] == [65, 5]
        assert [(clock - record.time, record.lower, record.upper) for record in history.records()] == [
            *((65, 9, 9), (45, 9, 11), (5, 11, 11), (0, 11, 11))  # the state is exact; a minute began 45 s ago
        ]


async def test_clock_that_is_ahead_for_a_minute_leaves_no_trace() -> None:
    """Charts, rolling counts, and for operators since when messages are counted and what a flush would have sent."""
    steady, ahead = 1e9, 0.0
    async with site_server(wall_clock=lambda: steady + ahead) as harness:
        right = Recorder(harness.server, clock=lambda: steady, steady=lambda: steady)
        tested = Recorder(harness.server, clock=lambda: steady + ahead, steady=lambda: steady)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 1))
        began = {"hits": steady}
        for second in range(300):
            steady, ahead = steady + 1, 800 * 86_400 if 100 <= second < 160 else 0.0
            tested.tick()
            right.tick()
            if second == 120:
                began["later"] = steady
                await harness.send(session, connection, Join("later", 0, 1))
            if second % 7 == 0:
                await harness.send(session, connection, Report("hits", 0, second + 2, 1))
        assert {name: harness.server.counter(name).traffic.began for name in began} == began
        ours, true = (each.for_counter(harness.server.counter("hits")) for each in (tested, right))
        assert list(ours.points) == list(true.points)
        assert ours.site_seconds == true.site_seconds
        for then in range(int(steady) - 299, int(steady), 10):
            rolling, truth = count_since(ours.records(), then), count_since(true.records(), then)
            assert rolling.lower <= truth.upper
            assert truth.lower <= rolling.upper


@pytest.mark.parametrize("seed", range(6))
def test_rolling_count_from_records_once_a_second_is_always_right(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of traffic that stops and bursts; few points are kept, so most spans begin between two of them."""
    monkeypatch.setattr(TimeSeries.__init__, "__defaults__", (60,))
    random, clock = Random(seed), 1e9  # noqa: S311
    counter: Any = Published(clock)
    server: Any = SimpleNamespace(by_name={"hits": counter})
    recorder = Recorder(server, clock=lambda: clock, steady=lambda: clock)
    moments: list[float] = []
    busy, away, answers = True, False, 0
    while clock < 1e9 + 3600:
        if random.random() < 0.01:
            busy = not busy
        if random.random() < 0.01:
            away = not away
        clock += random.expovariate(5.0)
        moments += [clock] * (random.randint(1, 40) if busy else random.random() < 0.02)
        if not away:
            counter.publish(len(moments) * (1 + ALPHA * random.uniform(-1, 1)))
        elif random.random() < 0.5:
            counter.publish(counter.published_answer.estimate, State.DEGRADED)
        if random.random() < 0.2:
            recorder.tick()
        if random.random() < 0.02 and not away:
            records, answers = recorder.for_counter(counter).records(), answers + 1
            for over in (1, 10, 60, 300, 900, 4000):
                then = clock - over
                true = len(moments) - bisect_right(moments, then)
                count = count_since(records, then)
                assert count.lower <= true <= count.upper, (seed, clock, over)
                assert count.known_since is None
    assert answers > 100


async def test_least_recently_requested_history_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_RECORDED", 3)

    async with site_server() as harness:
        for name in "abcde":
            harness.server.create(name, harness.server.settings.defaults)
        recorder = Recorder(harness.server, clock=lambda: harness.time, steady=lambda: harness.time)
        recorder.tick()
        recorder.for_counter(harness.server.counter("e"))  # a page shows a counter beyond the limit
        recorder.tick()
        assert recorder.debug_state() == ["b", "c", "e"]


async def test_public_points_do_not_reveal_when_rounds_begin() -> None:
    async with site_server() as harness:
        recorder = Recorder(harness.server, clock=lambda: harness.time, steady=lambda: harness.time)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 5))
        recorder.tick()
        await _new_round(harness, connection)
        harness.time = 10.0
        recorder.tick()
        past = recorder.for_counter(harness.server.counter("hits"))
        assert [row[1] for row in past.round_marks] == [0, 1]
        assert [row[0] for row in past.points] == [0]


async def _new_round(harness: SiteServerHarness, connection: FakeConnection) -> None:
    """An operator changes delta: a round starts, and the public answer does not change."""
    from countless.core.messages import Snapshot

    harness.server.configure("hits", harness.server.settings.defaults.__class__(delta=0.01))
    session = next(iter(harness.server.sessions))
    await harness.send(session, connection, Snapshot("hits", 1, 5))
