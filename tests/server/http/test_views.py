"""What an open page gets of counters: everything at first, then what has changed."""

from typing import Any

import pytest

from countless.core.messages import Report
from countless.errors import InvalidParameter
from countless.server.http.history.history import Recorder
from countless.server.http.page import counter_view, list_view
from countless.server.http.page.counter_view import CounterView, OperatorCounterView
from countless.server.http.page.list_view import ListView, OperatorListView
from countless.wire.families import FamilyJoin, FamilyLabels, FamilyReport
from countless.wire.frames import Join
from support.site_server import SiteServerHarness, site_server

NOON = 1_800_014_400.0


class Clock:
    """The time of the recorder, of the views, and at which counters begin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = self.steady = NOON
        for module in (counter_view, list_view):
            monkeypatch.setattr(module, "time", lambda: self.time)
        for view in (counter_view, list_view):
            monkeypatch.setattr(view, "monotonic", lambda: self.steady)

    def record(self, harness: SiteServerHarness) -> None:
        self.recorder = Recorder(harness.server, clock=lambda: self.time, steady=lambda: self.steady)

    def advance(self, seconds: int) -> None:
        for _ in range(seconds):
            self.time, self.steady = self.time + 1, self.steady + 1
            self.recorder.tick()


def by_name(view: CounterView | ListView) -> dict[str, Any]:
    return dict(view.changes())


async def test_counter_view_sends_spans_and_the_bars_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    async with site_server(wall_clock=lambda: clock.time) as harness:
        clock.record(harness)
        web = await harness.connect("web")
        await harness.send(*web, Join("hits", 0, 9))
        clock.advance(90)
        view = CounterView(harness.server, clock.recorder, "hits")
        first = by_name(view)
        assert list(first) == ["history", "spans", "bars", "answer"]
        assert (first["bars"]["per"], first["bars"]["choices"]) == ("minute", ("minute", "hour", "day"))
        assert [row[0] for row in first["bars"]["rows"]] == [NOON, NOON + 60]
        clock.advance(1)
        assert by_name(view) == {}
        await harness.send(*web, Report("hits", 0, 10, 1))
        clock.advance(1)
        second = by_name(view)
        assert list(second) == ["spans", "bars", "answer"]
        assert [(row[0], row[3]) for row in second["bars"]["rows"]] == [(NOON + 60, 1)]
        assert second["bars"]["first"] == NOON
        assert {each["name"]: each["estimate"] for each in second["spans"]["spans"]} == {"this-hour": 10, "today": 10}


async def test_counter_view_shows_the_bars_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    async with site_server(wall_clock=lambda: clock.time) as harness:
        clock.record(harness)
        harness.server.create("hits", harness.server.settings.defaults)
        assert by_name(CounterView(harness.server, clock.recorder, "hits", "day"))["bars"]["per"] == "day"
        with pytest.raises(InvalidParameter, match="bars must be one of: minute, hour, day, month"):
            CounterView(harness.server, clock.recorder, "hits", "week")


async def test_list_has_one_row_for_a_counter_with_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    async with site_server(scheme="exact", wall_clock=lambda: clock.time) as harness:
        clock.record(harness)
        web = await harness.connect("web")
        series = [f'hits{{route="/{letter}"}}' for letter in "ab"]
        await harness.send(*web, Join("hits", 0, 1), Join("other", 0, 7), *(Join(name, 0, 5) for name in series))
        clock.advance(60)
        await harness.send(*web, Report(series[0], 0, 8, 3))
        clock.advance(1)

        def rows(find: str, sort: str = "") -> list[tuple[str, int, float, float]]:
            ((_, data),) = OperatorListView(harness.server, clock.recorder, find, sort, 0).changes()
            assert data["states"] == {"exact": 2}
            return [(row["counter"], row["series"], row["estimate"], row["today"]["estimate"]) for row in data["rows"]]

        assert rows("") == [("hits", 3, 14, 14), ("other", 0, 7, 7)]
        assert rows("hit") == [("hits", 3, 14, 14)]
        assert rows("/B") == [(series[1], 0, 5, 5)]
        assert [name for name, *_ in rows("", "total")] == ["other", "hits"]
        events = by_name(OperatorCounterView(harness.server, clock.recorder, "hits", "", "", "", 0))
        assert list(events) == ["history", "spans", "bars", "top", "answer"]  # no sites or rounds of one part


async def test_rows_of_the_list_are_computed_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    async with site_server(wall_clock=lambda: clock.time) as harness:
        clock.record(harness)
        web = await harness.connect("web")
        names = [f"c{number}" for number in range(10)]
        await harness.send(*web, *(Join(name, 0, 0) for name in names))
        view = OperatorListView(harness.server, clock.recorder, "", "", 0)
        (kind, data) = next(iter(view.changes()))
        assert kind == "list"
        assert [len(row["bars"]) for row in data["rows"]] == [1] * 10
        await harness.send(*web, *(Report(name, 0, 5, 5) for name in names))
        counted: dict[str, int] = {}
        for second in range(1, 6):
            clock.advance(1)
            rows = {row["counter"]: row for row in by_name(view)["rows"]["rows"]}
            assert second > 1 or all(row["estimate"] == 5 for row in rows.values())  # totals are never late
            new = [name for name, row in rows.items() if row["today"]["estimate"] == 5 and name not in counted]
            assert len(new) == 2
            assert all(rows[name]["bars"][0][3] == 5 for name in new)
            counted |= dict.fromkeys(new, second)
        assert sorted(counted) == names


async def test_counter_with_labels_and_windows_has_the_top_of_the_present_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site_server(wall_clock=lambda: NOON + 100) as harness:
        clock, web = Clock(monkeypatch), await harness.connect("web")
        clock.record(harness)
        clock.time = NOON + 100
        hour = int(NOON) // 3600
        for route, before, now in (("a", 9, 1), ("b", 2, 5), ("c", 4, 0)):
            await harness.send(*web, Join(f'hits{{route="/{route}"}}@hour:{hour - 1}', 0, before))
            if now:
                await harness.send(*web, Join(f'hits{{route="/{route}"}}@hour:{hour}', 0, now))
        shown = by_name(CounterView(harness.server, clock.recorder, "hits"))
        names = {route: f'hits{{route="/{route}"}}' for route in "abc"}
        assert [row[:2] for row in shown["top"]["rows"]] == [[names["a"], 10], [names["b"], 7], [names["c"], 4]]
        window = shown["window-top"]
        assert [row[:2] for row in window["rows"]] == [[names["b"], 5], [names["a"], 1]]
        assert (window["per"], window["all"], window["estimate"]) == ("hour", 2, 6)


async def test_families_are_listed_and_their_page_has_labels_or_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    async with site_server(wall_clock=lambda: clock.time) as harness:
        clock.record(harness)
        web = await harness.connect("web")
        pages, values = FamilyJoin("pages", "labels", 0.1, 0.0, 0, 1, 1, 0, 0), ("values", 0.1, 0.01, 0, 1, 1, 0, 0)
        labels = FamilyLabels("pages", tuple(f'{{p="{n}"}}' for n in range(30)))
        counts = tuple(number for n in range(30) for number in (n + 1, n + 1))
        await harness.send(*web, pages, labels, FamilyReport("pages", 0, 465, counts))
        await harness.send(*web, FamilyJoin("ms", *values), FamilyLabels("ms", ("142",)))
        await harness.send(*web, FamilyReport("ms", 0, 9, (1, 9)), Join("hits", 0, 7))
        clock.advance(2)
        ((_, data),) = OperatorListView(harness.server, clock.recorder, "", "-total", 0).changes()
        assert [(row["counter"], row["estimate"], row["sites"]) for row in data["rows"]] == [
            *(("pages", pytest.approx(465, rel=0.2), 1), ("ms", 9, 1), ("hits", 7, 1))
        ]
        view = OperatorCounterView(harness.server, clock.recorder, "pages", "", "", "", 0)
        shown = by_name(view)
        assert list(shown) == ["history", "spans", "bars", "top", "answer"]
        assert (shown["top"]["all"], shown["top"]["epsilon"], len(shown["top"]["rows"])) == (30, 0.1, 20)
        assert shown["top"]["rows"][0][0] == 'pages{p="29"}'
        assert shown["top"]["rows"][0][2] == 30
        clock.advance(1)
        assert "top" not in by_name(view)  # nothing has changed
        quantiles = by_name(CounterView(harness.server, clock.recorder, "ms"))["quantiles"]
        assert quantiles["rows"][0][:2] == [0.5, pytest.approx(17, rel=0.01)]
        ((_, found),) = OperatorListView(harness.server, clock.recorder, 'P="2', "name", 0).changes()
        assert [row["counter"] for row in found["rows"]] == [f'pages{{p="{n}"}}' for n in (2, *range(20, 30))]
        label = by_name(CounterView(harness.server, clock.recorder, 'pages{p="29"}'))
        assert (list(label), label["answer"]["lower"]) == (["history", "spans", "bars", "answer"], 30)
        clock.advance(2)  # its history goes on: a page has shown it
        assert 'pages{p="29"}' in clock.recorder.debug_state()
        assert list(by_name(CounterView(harness.server, clock.recorder, 'pages{p="99"}'))) == ["missing"]


async def test_page_of_a_family_with_windows_has_the_top_of_this_window_the_last_and_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [490_000 * 3600.0]
    clock = Clock(monkeypatch)
    async with site_server(wall_clock=lambda: now[0]) as harness:
        clock.record(harness)
        web = await harness.connect("web")
        for number, n in enumerate((7, 3)):
            now[0] = (490_000 + number) * 3600.0
            name = f"pages@hour:{490_000 + number}"
            join = FamilyJoin(name, "labels", 0.01, 0.0, 0, 1, 1, 0, 0)
            await harness.send(*web, join, FamilyLabels(name, ('{p="a"}',)), FamilyReport(name, 0, n, (1, n)))
        clock.advance(2)
        view = CounterView(harness.server, clock.recorder, "pages")
        top = by_name(view)["top"]
        assert (top["rows"], top["per"]) == ([['pages{p="a"}', 10, 10, 10]], "hour")
        assert {which: each["rows"][0][1] for which, each in top["windows"].items()} == {"now": 3, "last": 7}
        clock.advance(1)
        assert "top" not in by_name(view)
        now[0] += 3600  # another window is the present one, although nothing was counted
        clock.advance(1)
        windows = by_name(view)["top"]["windows"]
        assert (windows["now"]["rows"], windows["last"]["rows"][0][1]) == ([], 3)


async def test_page_that_is_open_while_the_clock_is_ahead_is_updated_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    async with site_server(wall_clock=lambda: clock.time) as harness:
        clock.record(harness)
        web = await harness.connect("web")
        await harness.send(*web, Join("hits", 0, 9))
        clock.advance(90)
        view = OperatorCounterView(harness.server, clock.recorder, "hits", "", "", "", 0)
        listed = ListView(harness.server, clock.recorder, "", "name", 0)
        for ahead in (0, 800 * 86_400):
            clock.time += ahead
            clock.advance(5)
            by_name(view), by_name(listed)
        clock.time -= 800 * 86_400
        await harness.send(*web, Report("hits", 0, 10, 1))
        clock.advance(6)
        changed = by_name(view)
        assert changed["sites"]["rows"][0][3] == 10
        for row in (changed["bars"]["rows"][-1], by_name(listed)["rows"]["rows"][0]["bars"][-1]):
            assert (row[0], row[3]) == (NOON + 60, 1)
