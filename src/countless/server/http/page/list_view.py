"""All counters on an open page: one page of rows, found by a text and sorted."""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from itertools import islice
from time import monotonic, time
from typing import Any

from countless.server.http.answers.increases import increases_of
from countless.server.http.history.history import Recorder
from countless.server.http.history.parts import LabelView, by_counter
from countless.server.http.page.counter_view import (
    LIST_INTERVAL_S,
    ROWS_PER_PAGE,
    Event,
    SentBars,
    public_answer,
    public_bar,
    require_sort,
)
from countless.server.http.server_view import ServerView
from countless.server.sessions.readable import LabelReader, Readable
from countless.wire.keys import counter_of

BARS_PER_ROW = 24
ROW_INTERVAL_S = 5  # a row takes a millisecond, so only some of them are computed at a time
MAX_FOUND_LABELS, FIND_LABELS_INTERVAL_S = 1000, 5.0  # a family may have a million
COUNTER_SORTS = ("name", "total", "state")
_WORST_FIRST = ("degraded", "learning", "holding", "exact")


class ListView:
    def __init__(self, server: ServerView, recorder: Recorder, find: str, sort: str, start: int) -> None:
        self._server = server
        self._recorder = recorder
        self._find = find.casefold()
        self._sort = require_sort(sort, COUNTER_SORTS, "name")
        self._start = start
        self._last_rows: dict[str, dict[str, Any]] | None = None
        self._bars: dict[str, SentBars] = {}  # by counter
        self._shown: dict[str, tuple[float, dict[str, Any]]] = {}  # by counter: until when, and what
        self._last_totals: dict[str, Any] = {}
        self._labels: dict[str, LabelReader] = {}  # of families, that have the text
        self._labels_due = 0.0

    def changes(self) -> Iterator[Event]:
        """`list`, the whole page, when rows come, go or change places; otherwise `rows`, those that changed."""
        counters = by_counter(self._server.by_name)
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
            self._bars = {name: SentBars() for name in rows}
            full = [self._with_changed_bars(row) for row in rows.values()]
            yield "list", {"now": time(), "start": self._start, "rows": full, **totals}
        else:
            changed = [self._with_changed_bars(row) for name, row in rows.items() if row != last[name]]
            if changed or totals != self._last_totals:
                yield "rows", {"now": time(), "rows": changed, **totals}
        self._last_totals = totals

    def _found_series(self, shown: Mapping[str, Readable]) -> dict[str, Readable]:
        """Labelled series that have the text in their labels, and not in the name of their counter."""
        return {
            name: counter
            for name, counter in self._server.by_name.items()
            if name not in shown and self._find in name.casefold()[len(counter_of(name) or "") :]
        }

    def _found_labels(self) -> dict[str, Readable]:
        """Labels of families that have the text, which need not be those of this moment."""
        if monotonic() >= self._labels_due:
            self._labels_due = monotonic() + FIND_LABELS_INTERVAL_S
            names = (
                (family.series_name(label), family)
                for readable in self._server.by_name.values()
                if (family := readable.labels) is not None
                for label in family.published.counts
                if self._find in label.casefold()
            )
            self._labels = dict(islice(names, MAX_FOUND_LABELS))
        return {name: LabelView(name, family) for name, family in self._labels.items()}

    def _names(self, counters: Mapping[str, Readable]) -> list[str]:
        names = [name for name in counters if self._find in name.casefold()] if self._find else list(counters)
        key, reverse = self._sort.removeprefix("-"), self._sort.startswith("-")
        if key == "total":
            return sorted(names, key=lambda name: (counters[name].published_answer.estimate, name), reverse=reverse)
        if key == "state":
            rank = {state: index for index, state in enumerate(_WORST_FIRST)}
            return sorted(names, key=lambda name: (rank[counters[name].published_answer.state], name), reverse=reverse)
        return sorted(names, reverse=reverse)

    def _row(self, counter: Readable) -> dict[str, Any]:
        answer = public_answer(counter.published_answer)
        return {"counter": counter.name, "series": len(counter.parts), **answer, **self._increases(counter)}

    def _increases(self, counter: Readable) -> dict[str, Any]:
        due, shown = self._shown.get(counter.name, (0.0, {}))
        now = monotonic()
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

    def _row(self, counter: Readable) -> dict[str, Any]:
        answer = counter.published_answer
        messages = sum(part.traffic.up + part.traffic.down for part in counter.parts or [counter])
        extra = {"sites": answer.sites, "silent": len(answer.silent), "messages": messages}
        return super()._row(counter) | extra
