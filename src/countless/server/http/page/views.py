"""What an open page shows: all counters, or one. A view keeps what it sent last and yields what changed since then.

Views for the read scope and for operators are different classes: a view for readers has no access to anything else.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from time import time
from typing import Any, Protocol

from countless.core.calendar import PERIODS
from countless.core.family.answer import LabelCounts
from countless.core.family.rule import LABELS
from countless.errors import InvalidParameter
from countless.server.http.answers.families import family_window, largest_labels, quantiles_shown
from countless.server.http.answers.increases import Row, increases_of
from countless.server.http.answers.operator_view import SITE_SORTS, details, site_page, site_rows
from countless.server.http.answers.published import public_view
from countless.server.http.answers.sums import top_answer
from countless.server.http.answers.windows import window_answer
from countless.server.http.api.schemas import PublicAnswer
from countless.server.http.api.window_schemas import WindowAnswer
from countless.server.http.history.counter_sums import CounterSum, as_one, by_counter
from countless.server.http.history.family_parts import LabelView, family_parts
from countless.server.http.history.history import STATES, History, Recorded, Recorder
from countless.server.http.server_view import ServerView
from countless.server.sessions.families.family import ServedFamily
from countless.server.sessions.families.windowed_family import AnyFamily, WindowedFamily
from countless.server.sessions.labels import counter_of
from countless.server.sessions.windows.windowed_counter import AnyAnswer, AnyCounter, WindowedCounter

Event = tuple[str, dict[str, Any]]  # name and data of a server-sent event
Listed = AnyCounter | CounterSum | AnyFamily | LabelView

ROWS_PER_PAGE = 50
BARS_PER_ROW = 24
LIST_INTERVAL_S = 1.0
ROW_INTERVAL_S = 5  # a row takes a millisecond, so only some of them are computed at a time
INCREASES_INTERVAL_S = DETAILS_INTERVAL_S = 0.9
MAX_FOUND_LABELS, FIND_LABELS_INTERVAL_S = 1000, 5.0  # a family may have a million
TOP_ROWS = 20
TOP_SHARE = 0.001
COUNTER_SORTS = ("name", "total", "state")
_WORST_FIRST = ("degraded", "learning", "holding", "exact")


class View(Protocol):
    def changes(self) -> Iterator[Event]:
        """What changed since the last call; at the first call, everything."""

    async def wait(self) -> None: ...


def public_answer(answer: AnyAnswer) -> dict[str, Any]:
    """Everything that the read scope may see."""
    lower, upper = answer.lower, answer.upper
    return {"estimate": answer.estimate, "lower": lower, "upper": upper, "state": answer.state}


def public_bar(row: Row) -> Row:
    """Whether sites are awaited or lost, not how many."""
    *public, waiting, lost = row
    return [*public, bool(waiting), bool(lost)]


def _points(history: History) -> list[list[float | str]]:
    rows: list[list[float | str]] = []
    for moment, estimate, lower, upper, state in history.points:
        rows.append([round(moment, 1), estimate, lower, upper, STATES[int(state)]])
    return rows


def _require_sort(sort: str, sorts: tuple[str, ...], default: str) -> str:
    if sort.removeprefix("-") not in ("", *sorts):
        raise InvalidParameter("sort", sort, f"one of: {', '.join(sorts)}; a minus in front reverses the order")
    return sort or default


class _SentBars:
    """Bars by their start, as they were sent last."""

    def __init__(self) -> None:
        self._rows: dict[float, Row] = {}

    def changed(self, rows: list[Row]) -> list[Row]:
        last, self._rows = self._rows, {row[0]: row for row in rows}
        return [row for row in rows if row != last.get(row[0])]


class CounterView:
    def __init__(self, server: ServerView, recorder: Recorder, name: str, per: str = "") -> None:
        if per not in ("", *PERIODS):
            raise InvalidParameter("bars", per, f"one of: {', '.join(PERIODS)}")
        self._server = server
        self._recorder = recorder
        self._name = name
        self._per = per
        self._last: tuple[float, float, float, str] | None = None
        self._was_missing = False
        self._forget_increases()

    def _forget_increases(self) -> None:
        self._bars, self._last_spans, self._increases_due = _SentBars(), dict[str, Any](), 0.0
        self._last_labels: LabelCounts | None = None
        self._last_window = 0

    def changes(self) -> Iterator[Event]:
        """`missing` while there is no such counter. When it appears, `history`; then every `answer`, and once a second
        what has changed of its `spans` and `bars`, and the `top` of its labelled series; of a counter with windows also
        `window-top`, of the present one; of a family the `top` of its labels, of a distribution `quantiles`, and if it
        has windows also those of the present one and of the last.
        """
        counter = self._found()
        if counter is None:
            if not self._was_missing:
                yield "missing", {"counter": self._name}
            self._was_missing, self._last = True, None
            return
        self._was_missing = False
        answer = counter.published_answer
        current = (answer.estimate, answer.lower, answer.upper, str(answer.state))
        # Less: deleted, and created again under its name. The estimate of a family is in the middle of the bounds.
        of_family = isinstance(counter, ServedFamily | WindowedFamily | LabelView)
        if self._last is None or (current[1] < self._last[1] if of_family else current[0] < self._last[0]):
            yield "history", {"points": _points(self._recorder.for_counter(counter))}
            self._forget_increases()
        if time() >= self._increases_due:
            self._increases_due = time() + INCREASES_INTERVAL_S
            yield from self._increases(counter)
            if isinstance(counter, CounterSum):
                yield "top", self._top([public_view(part) for part in counter.parts])
                windows = [part for part in counter.parts if isinstance(part, WindowedCounter)]
                if windows:
                    top = self._top([window_answer(part, "now") for part in windows])
                    yield "window-top", {"per": windows[0].calendar.per, **top}
            if isinstance(counter, ServedFamily | WindowedFamily):
                yield from self._family(counter)
        if current != self._last:
            self._last = current
            yield "answer", {"now": time(), **public_answer(answer)}

    def _found(self) -> Listed | None:
        for family in family_parts(self._server.families.by_name, self._name):
            return family
        parts = self._server.parts(self._name)
        return as_one(self._name, parts) if parts else None

    def _family(self, family: AnyFamily) -> Iterator[Event]:
        present = family.present if isinstance(family, WindowedFamily) else 0
        if family.published is self._last_labels and present == self._last_window:
            return
        self._last_labels, self._last_window = family.published, present
        kind, shown = ("top", largest_labels) if family.rule.kind == LABELS else ("quantiles", quantiles_shown)
        data = shown(family)
        if isinstance(family, WindowedFamily):
            data["per"] = family.calendar.per
            data["windows"] = {which: shown(family, family_window(family, which)[0]) for which in ("now", "last")}
        yield kind, data

    def _top(self, answers: Sequence[PublicAnswer] | Sequence[WindowAnswer]) -> dict[str, Any]:
        top = top_answer(self._name, [*answers], share=TOP_SHARE)
        rows = [[row.counter, row.estimate, row.lower, row.upper] for row in top.series[:TOP_ROWS]]
        counted = sum(answer.upper > 0 for answer in answers)
        return {"rows": rows, "all": counted, "estimate": top.estimate}

    def _bar(self, row: Row) -> Row:
        return public_bar(row)

    def _increases(self, counter: Recorded) -> Iterator[Event]:
        increases, now = increases_of(counter, self._recorder.for_counter(counter), self._per), time()
        spans = {"tz": increases.tz, "rate": increases.rate(), "spans": increases.figures()}
        if spans != self._last_spans:
            self._last_spans = spans
            yield "spans", {"now": now, **spans}
        rows = [self._bar(row) for row in increases.bars()]
        if changed := self._bars.changed(rows):
            shown = {"tz": increases.tz, "per": increases.per, "choices": increases.pers, "first": rows[0][0]}
            yield "bars", {"now": now, **shown, "rows": changed}

    async def wait(self) -> None:
        counter = self._found()
        if counter is None or isinstance(counter, CounterSum):  # to wait for any of thousands of series would cost more
            await asyncio.sleep(LIST_INTERVAL_S)
        else:
            await counter.changed.wait()


class OperatorCounterView(CounterView):
    """One counter, for operators: also its rounds, cost, plan, and a page of its sites."""

    def __init__(
        self, server: ServerView, recorder: Recorder, name: str, per: str, find: str, sort: str, start: int
    ) -> None:
        super().__init__(server, recorder, name, per)
        self._find, self._start = find, start
        self._sort = _require_sort(sort, SITE_SORTS, "state")
        self._forget()

    def _forget(self) -> None:
        self._last_details: dict[str, dict[str, Any]] = {}  # by the name of the event
        self._last_mark = 0.0
        self._due = 0.0

    def changes(self) -> Iterator[Event]:
        for event in super().changes():
            if event[0] == "history":
                self._forget()
            yield event
        counter, now = self._server.counters.get(self._name), time()
        if counter is None or len(self._server.parts(self._name)) > 1 or now < self._due:
            return  # series have rounds, costs and sites of their own
        self._due = now + DETAILS_INTERVAL_S
        history = self._recorder.for_counter(counter)
        marks = [row for row in history.round_marks if row[0] > self._last_mark]
        if marks:
            self._last_mark = marks[-1][0]
            yield "marks", {"marks": marks}
        for name, data in (("details", details(counter, history)), ("sites", self._site_table(counter, now))):
            if data != self._last_details.get(name):
                self._last_details[name] = data
                yield name, data

    def _bar(self, row: Row) -> Row:
        return row

    def _site_table(self, counter: AnyCounter, now: float) -> dict[str, Any]:
        windowed = counter if isinstance(counter, WindowedCounter) else None
        tracker = windowed.tracker if windowed else counter  # of the present window
        rows = list(site_rows(self._server, counter, now))
        total = max(1, tracker.known_total)
        found, page = site_page(rows, self._find, self._sort, self._start, ROWS_PER_PAGE)
        return {
            "all": len(rows),
            "found": found,
            "start": self._start,
            "rows": [[row.site, row.state, round(row.last_seen), row.known, row.known / total] for row in page],
            "left": {"known": tracker.departed, "share": tracker.departed / total},
            "per": windowed.calendar.per if windowed else None,
        }


class ListView:
    def __init__(self, server: ServerView, recorder: Recorder, find: str, sort: str, start: int) -> None:
        self._server = server
        self._recorder = recorder
        self._find = find.casefold()
        self._sort = _require_sort(sort, COUNTER_SORTS, "name")
        self._start = start
        self._last_rows: dict[str, dict[str, Any]] | None = None
        self._bars: dict[str, _SentBars] = {}  # by counter
        self._shown: dict[str, tuple[float, dict[str, Any]]] = {}  # by counter: until when, and what
        self._last_totals: dict[str, Any] = {}
        self._labels: dict[str, LabelView] = {}  # of families, that have the text
        self._labels_due = 0.0

    def changes(self) -> Iterator[Event]:
        """`list`, the whole page, when rows come, go or change places; otherwise `rows`, those that changed."""
        counters: dict[str, Listed] = {**by_counter(self._server.counters), **self._server.families.by_name}
        states = Tally(str(counter.published_answer.state) for counter in counters.values())
        totals = {"all": len(counters), "states": dict(states)}
        if self._find:
            counters |= self._found_series(counters) | self._found_labels()
        names = self._names(counters)
        page = names[self._start : self._start + ROWS_PER_PAGE]
        self._shown = {name: self._shown[name] for name in page if name in self._shown}
        rows = {name: self._row(counters[name]) for name in page}
        totals["found"] = len(names)
        last, self._last_rows = self._last_rows, rows
        if last is None or list(rows) != list(last):
            self._bars = {name: _SentBars() for name in rows}
            full = [self._with_changed_bars(row) for row in rows.values()]
            yield "list", {"now": time(), "start": self._start, "rows": full, **totals}
        else:
            changed = [self._with_changed_bars(row) for name, row in rows.items() if row != last[name]]
            if changed or totals != self._last_totals:
                yield "rows", {"now": time(), "rows": changed, **totals}
        self._last_totals = totals

    def _found_series(self, shown: Mapping[str, Listed]) -> dict[str, Listed]:
        """Labelled series that have the text in their labels, and not in the name of their counter."""
        return {
            name: counter
            for name, counter in self._server.counters.items()
            if name not in shown and self._find in name.casefold()[len(counter_of(name) or "") :]
        }

    def _found_labels(self) -> dict[str, Listed]:
        """Labels of families that have the text, which need not be those of this moment."""
        if time() >= self._labels_due:
            self._labels_due = time() + FIND_LABELS_INTERVAL_S
            names = (
                (family.series_name(label), family)
                for family in self._server.families.by_name.values()
                for label in (family.published.counts if family.rule.kind == LABELS else ())
                if self._find in label.casefold()
            )
            self._labels = {name: LabelView(name, family) for name, family in islice(names, MAX_FOUND_LABELS)}
        return {name: LabelView(name, each.family) for name, each in self._labels.items()}

    def _names(self, counters: Mapping[str, Listed]) -> list[str]:
        names = [name for name in counters if self._find in name.casefold()] if self._find else list(counters)
        key, reverse = self._sort.removeprefix("-"), self._sort.startswith("-")
        if key == "total":
            return sorted(names, key=lambda name: (counters[name].published_answer.estimate, name), reverse=reverse)
        if key == "state":
            rank = {state: index for index, state in enumerate(_WORST_FIRST)}
            return sorted(names, key=lambda name: (rank[counters[name].published_answer.state], name), reverse=reverse)
        return sorted(names, reverse=reverse)

    def _row(self, counter: Listed) -> dict[str, Any]:
        series = len(counter.parts) if isinstance(counter, CounterSum) else 0
        answer = public_answer(counter.published_answer)
        return {"counter": counter.name, "series": series, **answer, **self._increases(counter)}

    def _increases(self, counter: Recorded) -> dict[str, Any]:
        due, shown = self._shown.get(counter.name, (0.0, {}))
        now = time()
        if now >= due:
            increases = increases_of(counter, self._recorder.for_counter(counter), bars=BARS_PER_ROW)
            bars = [public_bar(row) for row in increases.bars()]
            shown = {
                "tz": increases.tz,
                "per": increases.per,
                "first": bars[0][0],
                "bars": bars,
                "rate": increases.rate(),
            }
            shown |= {figure.pop("name"): figure for figure in increases.figures()}
            wait = ROW_INTERVAL_S if due else 1 + len(self._shown) % ROW_INTERVAL_S
            self._shown[counter.name] = now + wait, shown
        return shown

    def _with_changed_bars(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"bars": self._bars[row["counter"]].changed(row["bars"])}

    async def wait(self) -> None:
        await asyncio.sleep(LIST_INTERVAL_S)  # cheaper than to wait for a change of any of thousands of counters


class OperatorListView(ListView):
    """A page of all counters, for operators: also their sites and messages."""

    def _row(self, counter: Listed) -> dict[str, Any]:
        answer, traffic = counter.published_answer, counter.traffic
        messages = counter.messages if isinstance(counter, CounterSum) else traffic.up + traffic.down
        extra = {"sites": answer.sites, "silent": len(answer.silent), "messages": messages}
        return super()._row(counter) | extra
