"""One counter on an open page: its history, answers, increases, and its series or labels."""

import asyncio
from collections.abc import Iterator, Sequence
from time import monotonic, time
from typing import Any

from countless.core.answer import whole
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
from countless.server.http.history.counter_sums import CounterSum, as_one
from countless.server.http.history.family_parts import family_parts
from countless.server.http.history.history import STATES, History, Recorded, Recorder
from countless.server.http.page.views import (
    LIST_INTERVAL_S,
    ROWS_PER_PAGE,
    Event,
    Listed,
    SentBars,
    public_answer,
    public_bar,
    require_sort,
)
from countless.server.http.server_view import ServerView
from countless.server.kinds.family import TrackedFamily
from countless.server.kinds.windowed_counter import AnyCounter, WindowedCounter
from countless.server.kinds.windowed_family import AnyFamily, WindowedFamily
from countless.server.sessions.tracked import MessageCount

INCREASES_INTERVAL_S = DETAILS_INTERVAL_S = 0.9
TOP_ROWS = 20
TOP_SHARE = 0.001


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
        if self._last is None or self._traffic is not counter.traffic:  # it is new, perhaps under the name of another
            self._traffic = counter.traffic
            yield "history", {"points": _points(self._recorder.for_counter(counter))}
            self._forget_increases()
        if monotonic() >= self._increases_due:
            self._increases_due = monotonic() + INCREASES_INTERVAL_S
            yield from self._increases(counter)
            if isinstance(counter, CounterSum):
                yield "top", self._top([public_view(part) for part in counter.parts])
                windows = [part for part in counter.parts if isinstance(part, WindowedCounter)]
                if windows:
                    top = self._top([window_answer(part, "now") for part in windows])
                    yield "window-top", {"per": windows[0].calendar.per, **top}
            if isinstance(counter, TrackedFamily | WindowedFamily):
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
        counter, now = self._server.counters.get(self._name), time()
        if counter is None or len(self._server.parts(self._name)) > 1 or monotonic() < self._due:
            return  # series have rounds, costs and sites of their own
        self._due = monotonic() + DETAILS_INTERVAL_S
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
