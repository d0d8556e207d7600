"""What a page looks at: all counters, or one. A view remembers what it has told, and tells what is new."""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterator
from itertools import islice
from time import time
from typing import Any, Protocol

from countless.core.answer import Answer, bounds
from countless.errors import InvalidParameter
from countless.server.http.history import STATE_TABLE, History, Recorder
from countless.server.http.operator_view import SITE_SORTS, facts, site_page, site_rows
from countless.server.http.server_view import ServerView
from countless.server.sessions.counter import Counter

Event = tuple[str, dict[str, Any]]

PAGE = 50  # rows of a table that are sent at a time
SPARK = 48  # points of a sparkline
_WORST_FIRST = ("degraded", "learning", "holding", "exact")
COUNTER_SORTS = ("name", "total", "state")


class View(Protocol):
    """What one stream shows."""

    def look(self) -> Iterator[Event]:
        """What has changed since the last look."""

    async def news(self) -> None:
        """Until something may have changed, if that can be known."""


def public_answer(answer: Answer) -> dict[str, Any]:
    """All the public may know."""
    lower, upper = answer.lower, answer.upper
    return {"estimate": answer.estimate, "lower": lower, "upper": upper, "state": answer.state}


def _points(history: History) -> list[list[float | str]]:
    rows: list[list[float | str]] = []
    for moment, estimate, alpha, state in history.points:
        rows.append([round(moment, 1), estimate, *bounds(estimate, alpha), STATE_TABLE[int(state)]])
    return rows


def _checked_sort(sort: str, sorts: tuple[str, ...], default: str) -> str:
    if sort.removeprefix("-") not in ("", *sorts):
        raise InvalidParameter("sort", sort, f"one of: {', '.join(sorts)}; with a minus before it, the other way")
    return sort or default


class CounterView:
    """One counter, for everybody who may read."""

    def __init__(self, host: ServerView, recorder: Recorder, name: str) -> None:
        self._host = host
        self._recorder = recorder
        self._name = name
        self._told: tuple[float, float, str] | None = None  # None: not even that there is such a counter
        self._missed = False

    def look(self) -> Iterator[Event]:
        """The past at first, then every answer; or that there is no such counter, until there is."""
        counter = self._host.counters.get(self._name)
        if counter is None:
            if not self._missed:
                yield "missing", {"counter": self._name}
            self._missed, self._told = True, None
            return
        self._missed = False
        yield from self._answer(counter)

    def _answer(self, counter: Counter) -> Iterator[Event]:
        answer = counter.published_answer
        now = (answer.estimate, answer.alpha, str(answer.state))
        if self._told is None or answer.estimate < self._told[0]:  # at first, or another counter of the same name
            yield "history", {"points": _points(self._recorder.of(counter))}
        if now != self._told:
            self._told = now
            yield "answer", {"now": time(), **public_answer(answer)}

    async def news(self) -> None:
        """Until the answer moves."""
        counter = self._host.counters.get(self._name)
        await (counter.changed.wait() if counter else asyncio.sleep(1))


class OperatorCounterView(CounterView):
    """One counter, and all that is behind it, with a page of its sites."""

    def __init__(self, host: ServerView, recorder: Recorder, name: str, find: str, sort: str, start: int) -> None:
        super().__init__(host, recorder, name)
        self._find, self._start = find, start
        self._sort = _checked_sort(sort, SITE_SORTS, "state")
        self._facts: dict[str, Any] = {}
        self._sites: dict[str, Any] = {}
        self._marks = 0.0  # the time of the last one told
        self._due = 0.0

    def _answer(self, counter: Counter) -> Iterator[Event]:
        if self._told is None:
            self._marks = self._due = 0.0
        yield from super()._answer(counter)
        now = time()
        if now < self._due:
            return
        self._due = now + 0.9
        history = self._recorder.of(counter)
        marks = [row for row in history.marks if row[0] > self._marks]
        if marks:
            self._marks = marks[-1][0]
            yield "marks", {"marks": marks}
        behind, sites = facts(counter, history), self._site_table(counter, now)
        if behind != self._facts:
            self._facts = behind
            yield "facts", behind
        if sites != self._sites:
            self._sites = sites
            yield "sites", sites

    def _site_table(self, counter: Counter, now: float) -> dict[str, Any]:
        rows = list(site_rows(self._host, counter, now))
        total = max(1, counter.coordinator.known_total)
        found, page = site_page(rows, self._find, self._sort, self._start, PAGE)
        return {
            "all": len(rows),
            "found": found,
            "start": self._start,
            "rows": [[row.site, row.state, round(row.heard), row.known, row.known / total] for row in page],
            "left": {"known": counter.departed, "share": counter.departed / total},
        }


class ListView:
    """All counters, for everybody who may read: a page of them, in the order and with the name asked for."""

    def __init__(self, host: ServerView, recorder: Recorder, find: str, sort: str, start: int) -> None:
        self._host = host
        self._recorder = recorder
        self._find = find.casefold()
        self._sort = _checked_sort(sort, COUNTER_SORTS, "name")
        self._start = start
        self._told: dict[str, dict[str, Any]] = {}
        self._order: list[str] | None = None
        self._numbers: dict[str, Any] = {}

    def look(self) -> Iterator[Event]:
        """The whole page when rows come, go or change places; otherwise the rows that changed."""
        names = self._names()
        page = names[self._start : self._start + PAGE]
        rows = {name: self._row(self._host.counters[name]) for name in page}
        tally = Tally(str(counter.published_answer.state) for counter in self._host.counters.values())
        numbers = {"all": len(self._host.counters), "found": len(names), "states": dict(tally)}
        if page != self._order:
            sparks = {name: self._spark(self._host.counters[name]) for name in page}
            full = [row | {"spark": sparks[name]} for name, row in rows.items()]
            yield "list", {"now": time(), "start": self._start, "rows": full, **numbers}
        else:
            changed = [row for name, row in rows.items() if row != self._told[name]]
            if changed or numbers != self._numbers:
                yield "rows", {"now": time(), "rows": changed, **numbers}
        self._order, self._told, self._numbers = page, rows, numbers

    def _names(self) -> list[str]:
        counters = self._host.counters
        names = [name for name in counters if self._find in name.casefold()] if self._find else list(counters)
        key, reverse = self._sort.removeprefix("-"), self._sort.startswith("-")
        if key == "total":
            return sorted(names, key=lambda name: (counters[name].published_answer.estimate, name), reverse=reverse)
        if key == "state":
            rank = {state: index for index, state in enumerate(_WORST_FIRST)}
            return sorted(names, key=lambda name: (rank[counters[name].published_answer.state], name), reverse=reverse)
        return sorted(names, reverse=reverse)

    def _row(self, counter: Counter) -> dict[str, Any]:
        return {"counter": counter.name, **public_answer(counter.published_answer)}

    def _spark(self, counter: Counter) -> list[list[float]]:
        points = [[round(row[0]), row[1]] for row in self._recorder.of(counter).points]
        every = -(-len(points) // SPARK)
        return list(islice(reversed(points), 0, None, every or 1))[::-1]

    async def news(self) -> None:
        """Whenever it is time again: one look is cheaper than hearing of every counter."""
        await asyncio.sleep(1)


class OperatorListView(ListView):
    """All counters, with their sites and messages."""

    def _row(self, counter: Counter) -> dict[str, Any]:
        answer, traffic = counter.published_answer, counter.traffic
        behind = {"sites": answer.sites, "silent": len(answer.silent), "messages": traffic.up + traffic.down}
        return super()._row(counter) | behind
