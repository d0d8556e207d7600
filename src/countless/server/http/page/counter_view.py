"""One counter on an open page: its history, answers, increases, and its series or labels. And what all views share.

A view keeps what it sent last and yields what changed since then. Views for the read scope and for operators are
different classes: a view for readers has no access to anything else.
"""

import asyncio
from collections.abc import Iterator, Sequence
from time import monotonic, time
from typing import Any, Protocol

from countless.core.answer import whole
from countless.core.calendar import PERIODS
from countless.errors import InvalidParameter
from countless.server.http.answers.increases import Row, increases_of
from countless.server.http.answers.labels import labels_or_quantiles
from countless.server.http.answers.operator_view import SITE_SORTS, details, site_page, site_rows
from countless.server.http.answers.published import public_view
from countless.server.http.answers.sums import find_parts, top_answer
from countless.server.http.answers.windows import window_answer
from countless.server.http.api.schemas import PublicAnswer
from countless.server.http.api.window_schemas import WindowAnswer
from countless.server.http.history.history import STATES, History, Recorder
from countless.server.http.history.parts import as_one
from countless.server.http.server_view import ServerView
from countless.server.sessions.readable import AnyAnswer, MessageCount, Readable, RoundReader

Data = dict[str, Any]
Event = tuple[str, Data]  # name and data of a server-sent event

ROWS_PER_PAGE = 50
LIST_INTERVAL_S = 1.0
INCREASES_INTERVAL_S = DETAILS_INTERVAL_S = 0.9
TOP_ROWS = 20
TOP_SHARE = 0.001


class View(Protocol):
    def changes(self) -> Iterator[Event]:
        """The changes since the last call; at the first call, everything."""

    async def wait(self) -> None: ...


def public_answer(answer: AnyAnswer) -> dict[str, Any]:
    """Everything that the read scope may see."""
    estimate, lower, upper = whole(answer.estimate, *answer.bounds)
    return {"estimate": estimate, "lower": lower, "upper": upper, "state": answer.state}


def public_bar(row: Row) -> Row:
    """Says that sites are awaited or lost, not their number."""
    *public, waiting, lost = row
    return [*public, bool(waiting), bool(lost)]


def require_sort(sort: str, sorts: tuple[str, ...], default: str) -> str:
    if sort.removeprefix("-") not in ("", *sorts):
        raise InvalidParameter("sort", sort, f"one of: {', '.join(sorts)}; a minus in front reverses the order")
    return sort or default


class SentBars:
    """Bars by their start, as they were sent last."""

    def __init__(self) -> None:
        self._rows: dict[float, Row] = {}

    def changed(self, rows: list[Row]) -> list[Row]:
        last, self._rows = self._rows, {row[0]: row for row in rows}
        return [row for row in rows if row != last.get(row[0])]


def _points(history: History) -> list[list[float | str]]:
    rows: list[list[float | str]] = []
    for moment, estimate, lower, upper, state in history.points:
        rows.append([round(moment, 1), *whole(estimate, lower, upper), STATES[int(state)]])
    return rows


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
        self._traffic: MessageCount | None = None
        self._forget_increases()

    def _forget_increases(self) -> None:
        self._bars, self._last_spans, self._increases_due = SentBars(), dict[str, Any](), 0.0
        self._last_labels: object = None
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
        if self._last is None or self._traffic is not counter.traffic:  # it is new, perhaps under the name of another
            self._traffic = counter.traffic
            yield "history", {"points": _points(self._recorder.for_counter(counter))}
            self._forget_increases()
        if monotonic() >= self._increases_due:
            self._increases_due = monotonic() + INCREASES_INTERVAL_S
            yield from self._increases(counter)
            if counter.parts:
                yield "top", self._top([public_view(part) for part in counter.parts])
                windows = [(part, part.windows) for part in counter.parts if part.windows is not None]
                if windows:
                    top = self._top([window_answer(part, "now") for part, _ in windows])
                    yield "window-top", {"per": windows[0][1].calendar.per, **top}
            yield from self._labels(counter)
        if current != self._last:
            self._last = current
            yield "answer", {"now": time(), **public_answer(answer)}

    def _found(self) -> Readable | None:
        parts = find_parts(self._server, self._name)
        return as_one(self._name, parts) if parts else None

    def _labels(self, counter: Readable) -> Iterator[Event]:
        """The labels of a family or a distribution, if they or its present window have changed."""
        family, windows = counter.labels or counter.values, counter.windows
        present = 0 if windows is None else windows.calendar.period_at(windows.now())
        if family is None or (family.published is self._last_labels and present == self._last_window):
            return
        self._last_labels, self._last_window = family.published, present
        shown = labels_or_quantiles(counter)
        yield from () if shown is None else [shown]

    def _top(self, answers: Sequence[PublicAnswer] | Sequence[WindowAnswer]) -> dict[str, Any]:
        top = top_answer(self._name, [*answers], share=TOP_SHARE)
        rows = [[row.counter, row.estimate, row.lower, row.upper] for row in top.series[:TOP_ROWS]]
        counted = sum(answer.upper > 0 for answer in answers)
        return {"rows": rows, "all": counted, "estimate": top.estimate}

    def _bar(self, row: Row) -> Row:
        return public_bar(row)

    def _increases(self, counter: Readable) -> Iterator[Event]:
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
        if counter is None or counter.parts:  # to wait for any of thousands of series would cost more
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
        self._sort = require_sort(sort, SITE_SORTS, "state")
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
        found, now = self._server.by_name.get(self._name), time()
        counter = None if found is None else found.rounds
        if counter is None or len(self._server.parts(self._name)) > 1 or monotonic() < self._due:
            return  # series have rounds, costs and sites of their own
        self._due = monotonic() + DETAILS_INTERVAL_S
        history = self._recorder.for_counter(counter)
        marks = [row for row in history.round_marks if row[0] > self._last_mark]
        if marks:
            self._last_mark = marks[-1][0]
            yield "marks", {"marks": marks}
        events = {"details": details(counter, history), "sites": self._site_table(counter, now)}
        for name, data in events.items():
            if data != self._last_details.get(name):
                self._last_details[name] = data
                yield name, data

    def _bar(self, row: Row) -> Row:
        return row

    def _site_table(self, counter: RoundReader, now: float) -> dict[str, Any]:
        """With windows, of the present one."""
        rows = list(site_rows(self._server, counter, now))
        total, departed = max(1, counter.coordinator.known_total), counter.coordinator.departed
        found, page = site_page(rows, self._find, self._sort, self._start, ROWS_PER_PAGE)
        return {
            "all": len(rows),
            "found": found,
            "start": self._start,
            "rows": [[row.site, row.state, round(row.last_seen), row.known, row.known / total] for row in page],
            "left": {"known": departed, "share": departed / total},
            "per": None if counter.windows is None else counter.windows.calendar.per,
        }
