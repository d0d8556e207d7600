"""Histories for charts: bounded, sparse where they are old, and in two series that reveal nothing of each other."""

import pytest

from countless.core.messages import Report
from countless.server.http import history
from countless.server.http.history import MAX_POINTS, Recorder, TimeSeries
from countless.wire.frames import Join
from support.site_server import FakeConnection, SiteServerHarness, site_server


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
        recorder = Recorder(harness.server, clock=lambda: harness.time)
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


async def test_counter_created_again_under_its_name_has_a_new_history() -> None:
    async with site_server() as harness:
        recorder = Recorder(harness.server, clock=lambda: harness.time)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 9))
        recorder.tick()
        harness.server.delete("hits")
        await harness.send(session, connection, Join("hits", 0, 2))  # before the next record
        recorder.tick()
        assert [row[1] for row in recorder.for_counter(harness.server.counter("hits")).points] == [2]


async def test_least_recently_requested_history_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_RECORDED", 3)

    async with site_server() as harness:
        for name in "abcde":
            harness.server.create(name, harness.server.settings.defaults)
        recorder = Recorder(harness.server, clock=lambda: harness.time)
        recorder.tick()
        recorder.for_counter(harness.server.counter("e"))  # a page shows a counter beyond the limit
        recorder.tick()
        assert recorder.debug_state() == ["b", "c", "e"]


async def test_public_points_do_not_reveal_when_rounds_begin() -> None:
    async with site_server() as harness:
        recorder = Recorder(harness.server, clock=lambda: harness.time)
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
