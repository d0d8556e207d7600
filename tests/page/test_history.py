"""The past that charts are drawn from: bounded, thinned, and in two series that do not tell of each other."""

import asyncio

import pytest

from countless.core.messages import Report
from countless.server.http import history
from countless.server.http.history import MOST_POINTS, Recorder, Series
from countless.wire.frames import Join
from support.site_server import FakeConnection, SiteServerHarness, site_server


def test_a_series_keeps_its_first_and_last_row_and_no_more_than_it_may() -> None:
    series = Series(2)
    for second in range(100_000):
        series.add(float(second), float(second))
        assert len(series) <= MOST_POINTS
    times = [time for time, _ in series]
    assert (times[0], times[-1]) == (0, 99_999)
    assert times == sorted(times)
    assert times[-80:] == list(range(99_920, 100_000))  # the recent past is all there
    for age in (100, 1_000, 10_000, 90_000):  # and of the rest something of every age
        assert any(abs(100_000 - time - age) <= age / 8 for time in times), age


def test_what_does_not_change_takes_no_room() -> None:
    series = Series(3)
    for second in range(1000):
        series.add(float(second), 7.0, 1.0)
    assert list(series) == [(0.0, 7.0, 1.0)]


def test_the_recorder_keeps_the_past_of_every_counter_that_is_there() -> None:
    async def story() -> None:
        async with site_server() as table:
            recorder = Recorder(table.server, clock=lambda: table.time)
            life, line = await table.connect("web")
            await table.send(life, line, Join("hits", 0, 0))
            for second in range(1, 4):
                table.time = float(second)
                await table.send(life, line, Report("hits", 0, second, second))
                recorder.tick()
                recorder.tick()
            past = recorder.of(table.server.counter("hits"))
            assert [row[:2] for row in past.points] == [(1, 1), (2, 2), (3, 3)]
            assert past.site_seconds == 2  # one site, from the first look to the last
            table.server.delete("hits")
            recorder.tick()
            await table.send(life, line, Join("hits", 0, 0))
            again = recorder.of(table.server.counter("hits"))
            assert [row[1] for row in again.points] == [0]

    asyncio.run(story())


def test_a_counter_that_begins_again_under_its_name_has_no_past() -> None:
    async def story() -> None:
        async with site_server() as table:
            recorder = Recorder(table.server, clock=lambda: table.time)
            life, line = await table.connect("web")
            await table.send(life, line, Join("hits", 0, 9))
            recorder.tick()
            table.server.delete("hits")
            await table.send(life, line, Join("hits", 0, 2))  # before the recorder has looked again
            recorder.tick()
            assert [row[1] for row in recorder.of(table.server.counter("hits")).points] == [2]

    asyncio.run(story())


def test_of_many_counters_only_so_many_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_RECORDED", 3)

    async def story() -> None:
        async with site_server() as table:
            for name in "abcde":
                table.server.create(name, table.server.settings.defaults)
            recorder = Recorder(table.server, clock=lambda: table.time)
            recorder.tick()
            recorder.of(table.server.counter("e"))  # somebody looks at one beyond the limit
            recorder.tick()
            assert set(recorder._histories) == {"b", "c", "e"}

    asyncio.run(story())


def test_points_that_the_public_sees_do_not_tell_when_rounds_begin() -> None:
    async def story() -> None:
        async with site_server() as table:
            recorder = Recorder(table.server, clock=lambda: table.time)
            life, line = await table.connect("web")
            await table.send(life, line, Join("hits", 0, 5))
            recorder.tick()
            await _new_round(table, line)
            table.time = 10.0
            recorder.tick()
            past = recorder.of(table.server.counter("hits"))
            assert [row[1] for row in past.marks] == [0, 1]
            assert [row[0] for row in past.points] == [0]

    asyncio.run(story())


async def _new_round(table: SiteServerHarness, line: FakeConnection) -> None:
    """The operator changes a rule: the sites are asked, and answer, and nothing of it can be seen in public."""
    from countless.core.messages import Snapshot

    table.server.configure("hits", table.server.settings.defaults.__class__(delta=0.01))
    life = next(iter(table.server.sessions))
    await table.send(life, line, Snapshot("hits", 1, 5))
