"""Bars, this hour, today and the rate of counters with windows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from countless.core.answer import State
from countless.core.calendar import calendar_of
from countless.core.periods.spans import count_of_span
from countless.core.periods.window import WindowRule
from countless.server.http.answers.increases import Increases, WindowIncreases, increases_of
from countless.server.http.answers.sums import summed
from countless.server.http.answers.windows import rolling_answer, window_answer
from countless.server.http.api.window_schemas import WindowAnswer
from countless.server.http.history.history import Recorder
from countless.server.http.history.parts import CounterSum
from countless.server.http.page.counter_view import CounterView, OperatorCounterView
from countless.server.http.page.list_view import ListView
from countless.server.kinds.counter import WindowedCounter
from countless.server.settings import Config
from countless.server.storage.rows import StateStore
from countless.wire.frames import Join, Leave
from countless.wire.keys import COUNTER, Key, calendar_text
from support.site_server import SiteServerHarness, site_server

NOW = calendar_of("hour", "Europe/Berlin").moment("2026-11-16T09:30")


class World:
    """A coordinator whose sites count in windows; it is half past nine in Berlin."""

    def __init__(self, harness: SiteServerHarness, rule: WindowRule) -> None:
        self.harness, self.time, self.calendar, self._sites = harness, NOW, rule.calendar, 0
        self.recorder = Recorder(harness.server, clock=lambda: self.time, steady=lambda: self.time)

    @property
    def counter(self) -> WindowedCounter:
        counter = self.harness.server.counter("hits")
        assert isinstance(counter, WindowedCounter)
        return counter

    async def count(self, text: str, number: int, finish: bool = True, series: str = "hits") -> None:
        """A new site counts in the window of this time, and finishes it."""
        period = self.calendar.period_at(self.calendar.moment(text))
        name = str(Key(COUNTER, series, calendar_text(self.calendar), period))
        self._sites += 1
        site = await self.harness.connect(f"web-{self._sites}")
        await self.harness.send(*site, Join(name, 0, number))
        if finish:
            await self.harness.send(*site, Leave(name, 0, number))
        await self.harness.advance(1)
        self.recorder.tick()

    def increases(self, per: str = "", bars: int | None = None) -> Increases:
        return increases_of(self.counter, self.recorder.for_counter(self.counter), per, bars)

    def bars(self, per: str = "") -> list[tuple[str, float, str, int, int]]:
        """Start by the clocks of the time zone, estimate, state, sites that are awaited, and lost."""
        return [
            (self.calendar.local_time(row[0])[:16], row[3], str(row[5]), row[7], row[8])
            for row in self.increases(per).bars()
        ]


@asynccontextmanager
async def world(per: str, store: StateStore | None = None, **rule: Any) -> AsyncIterator[World]:
    windows = WindowRule(per, "Europe/Berlin", **rule)
    async with site_server(store, wall_clock=lambda: NOW, scheme="exact", silent_after=1) as harness:
        if store is None:
            harness.server.create("hits", Config(scheme="exact", windows=windows))
        yield World(harness, windows)


async def test_bars_are_the_windows_of_the_counter() -> None:
    async with world("hour") as hours:
        await hours.count("2026-11-15T23:10", 4)
        await hours.count("2026-11-16T06:10", 5)
        await hours.count("2026-11-16T08:10", 7, finish=False)
        await hours.count("2026-11-16T09:10", 2, finish=False)
        bars = hours.bars()
        assert [bar for bar in bars if bar[1]] == [
            ("2026-11-15T23:00", 4, "closed", 0, 0),
            ("2026-11-16T06:00", 5, "closed", 0, 0),
            ("2026-11-16T08:00", 7, "incomplete", 1, 0),
            ("2026-11-16T09:00", 2, "open", 0, 0),
        ]
        assert [bar[0][11:13] for bar in bars] == ["23", *(f"0{hour}" for hour in range(10))]  # also those without any
        assert hours.bars("day") == [("2026-11-15T00:00", 4, "closed", 0, 0), ("2026-11-16T00:00", 14, "open", 0, 0)]
        assert hours.bars("minute") == bars  # there are none: windows are longer
        assert hours.increases().pers == ("hour", "day", "month")
        assert len(hours.increases("hour", 3).bars()) == 3


async def test_bar_with_a_lost_site_is_incomplete_for_good() -> None:
    async with world("hour") as hours:
        await hours.count("2026-11-16T07:10", 7, finish=False)
        server = hours.harness.server
        for session in server.sessions:
            assert session.connection is not None
            server.on_disconnect(session, session.connection)
        await hours.harness.advance(10)
        assert server.drop_site("web-1") == 1
        await hours.harness.advance(1)
        assert [bar[2:] for bar in hours.bars()] == [*[("incomplete", 0, 1)] * 2, ("open", 0, 1)]


@pytest.mark.parametrize("seed", range(10))
async def test_bars_and_figures_are_what_the_windows_add_up_to(seed: int) -> None:
    """Windows that are closed, open, missing, lost or not kept any more: each bar is the count of its span."""
    random = Random(seed)  # noqa: S311
    async with world("minute", keep=random.choice([5, 40, None])) as minutes:
        server = minutes.harness.server
        for _ in range(25):
            moment = minutes.calendar.local_time(NOW - random.randrange(5400))
            await minutes.count(moment, random.randint(1, 9), finish=random.random() < 0.9)
        for session in server.sessions:
            if random.random() < 0.3 and session.connection is not None:
                server.on_disconnect(session, session.connection)
        await minutes.harness.advance(10)
        for number in range(1, 26):
            server.drop_site(f"web-{number}")
        await minutes.harness.advance(1)
        for per in ("minute", "hour", "day"):
            increases = minutes.increases(per)
            for start, end, lower, estimate, upper, state, since, _, lost in increases.bars():
                begin = start if since is None else since
                windows = minutes.counter.windows_between(begin, end)
                expected = count_of_span(minutes.counter, begin, end, NOW, windows)
                assert (lower, estimate, state, lost) == (*expected[2:4], expected.state, expected.lost), (seed, start)
                if upper is None:
                    assert expected.lost or minutes.counter.published_answer.state is State.DEGRADED
                else:
                    assert upper == expected.upper
        for span in (60, 600, 3000, 7200):
            found = WindowIncreases._count(increases, NOW - span, NOW)  # type: ignore[arg-type]
            rolling = rolling_answer(minutes.counter, minutes.recorder, f"{span}s")
            assert (found.lower, found.estimate, found.upper) == (rolling.lower, rolling.estimate, rolling.upper)


async def test_figures_are_those_of_the_api() -> None:
    async with world("hour") as hours:
        await hours.count("2026-11-15T23:10", 4)
        await hours.count("2026-11-16T00:10", 5)  # still yesterday by UTC
        await hours.count("2026-11-16T09:10", 2, finish=False)
        figures = {figure["name"]: figure for figure in hours.increases().figures()}
        assert {name: figure["estimate"] for name, figure in figures.items()} == {"this-hour": 2, "today": 7}
        for name, figure in figures.items():
            answer = window_answer(hours.counter, name)
            assert (figure["lower"], figure["estimate"], figure["upper"], figure["since"]) == (
                *(answer.lower, answer.estimate, answer.upper, answer.known_since),
            )


async def test_part_of_today_that_is_not_kept_any_more_is_unknown() -> None:
    async with world("hour", keep=2) as hours:
        for hour in range(5, 9):
            await hours.count(f"2026-11-16T0{hour}:10", 10)
        today = hours.increases().figures()[1]
        assert (today["lower"], today["estimate"], today["upper"]) == (20, 20, 20)
        assert today["since"] == hours.calendar.moment("2026-11-16T07:00")
        assert [bar[0][11:13] for bar in hours.bars()] == ["07", "08", "09"]
        assert hours.increases("day").bars()[0][6] == today["since"]


@pytest.mark.parametrize(("per", "names"), [("day", 2), ("month", 3)])
async def test_spans_shorter_than_a_window_come_from_the_recorded_answers(per: str, names: int) -> None:
    async with world(per) as windows:
        windows.counter.traffic.began = NOW - 7200  # nothing was counted before
        windows.recorder.tick()
        windows.time += 60
        await windows.count("2026-11-16", 5, finish=False)
        figures = windows.increases().figures()
        assert [figure["name"] for figure in figures] == ["this-hour", "today", "this-month"][:names]
        assert [(figure["estimate"], figure["upper"]) for figure in figures] == [(5, 5)] * names
        assert windows.increases().per == per


async def test_rate_is_known_after_a_restart() -> None:
    async with world("minute") as before:
        for minute in range(20, 30):
            await before.count(f"2026-11-16T09:{minute}", 60)
        async with world("minute", before.harness.store) as after:
            after.time = NOW + 1
            rate = after.increases().rate()
            assert (rate["over"], rate["lower"], rate["upper"]) == (300, 0.8, 1.0)  # one of five windows partly


async def test_windows_of_a_counter_with_labels_are_the_sums_of_those_of_its_series_after_a_restart() -> None:
    async with world("hour", keep=2) as before:
        for hour in range(6, 10):
            await before.count(f"2026-11-16T0{hour}:10", 10 * hour, series='hits{route="/a"}')
        await before.count("2026-11-16T09:10", 2, series='hits{route="/b"}')
        await before.count("2026-11-16T08:10", 3, finish=False, series='hits{route="/b"}')
        async with world("hour", before.harness.store) as after:
            counter = CounterSum("hits", after.harness.server.parts("hits"))
            increases = increases_of(counter, after.recorder.for_counter(counter))
            figures = {figure["name"]: figure for figure in increases.figures()}
            for name, figure in figures.items():
                answer = summed("hits", [window_answer(part, name) for part in after.harness.server.parts("hits")])
                assert isinstance(answer, WindowAnswer)
                since = answer.known_since and after.calendar.moment(answer.known_since)
                assert (figure["estimate"], figure["since"]) == (answer.estimate, since)
                assert figure["lower"] == answer.lower
            assert figures["this-hour"]["estimate"] == 92
            assert figures["today"]["since"] == after.calendar.moment("2026-11-16T07:00")
            bars = [(after.calendar.local_time(row[0])[11:13], row[3], str(row[5]), row[7]) for row in increases.bars()]
            assert bars == [("07", 70, "closed", 0), ("08", 83, "incomplete", 1), ("09", 92, "open", 0)]


async def test_readers_see_that_a_window_waits_and_operators_for_how_many_and_whom() -> None:
    async with world("hour") as hours:
        await hours.count("2026-11-16T08:10", 7, finish=False)
        await hours.count("2026-11-16T09:10", 2, finish=False)
        await hours.count("2026-11-16T09:20", 1)
        server, recorder = hours.harness.server, hours.recorder
        public = dict(CounterView(server, recorder, "hits").changes())
        operator = dict(OperatorCounterView(server, recorder, "hits", "", "", "", 0).changes())
        assert public["bars"]["tz"] == "Europe/Berlin"
        assert [row[5:] for row in public["bars"]["rows"]] == [
            ["incomplete", None, True, False],
            ["open", None, False, False],
        ]
        assert [row[5:] for row in operator["bars"]["rows"]] == [["incomplete", None, 1, 0], ["open", None, 0, 0]]
        assert "web-" not in str(public)
        shown = operator["details"]["windows"]
        assert (shown["per"], shown["waiting"], shown["waiting_for"]) == ("hour", 1, ["web-1"])
        sites = operator["sites"]  # of the present window
        assert [(row[0], row[3]) for row in sites["rows"]] == [("web-2", 2)]
        assert (sites["per"], sites["left"]["known"]) == ("hour", 1)
        (row,) = next(iter(ListView(server, recorder, "", "", 0).changes()))[1]["rows"]
        assert (row["per"], row["tz"], row["today"]["estimate"]) == ("hour", "Europe/Berlin", 10)
        assert [bar[3] for bar in row["bars"]] == [7, 3]
        assert row["bars"][0][7] is True
