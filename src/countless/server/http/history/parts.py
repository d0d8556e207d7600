"""Sums of labelled series, and labels of families, which are read like counters. Both are made for one reading."""

import asyncio
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import ceil, floor

from countless.core.answer import whole, worst_state
from countless.core.periods.spans import SpanCount
from countless.core.periods.window import TotalAnswer, Window, WindowState
from countless.server.sessions.readable import (
    ClosedTotals,
    LabelReader,
    MessageCount,
    Readable,
    SpanReader,
    TotalOnly,
    WindowReader,
)
from countless.server.storage.health import SaveHealth
from countless.wire.keys import counter_of

MAX_SUMMED = 200  # series whose windows a page adds up; of more it shows what was recorded of their sum


class LabelView(TotalOnly):
    """One label of a family, as a series of a counter."""

    has_rolling = False

    def __init__(self, name: str, family: LabelReader) -> None:
        self.name = name
        self.health: SaveHealth = family.health
        self.traffic: MessageCount = family.traffic
        self._family = family
        self._label = family.label_of(name)

    @cached_property
    def published_answer(self) -> TotalAnswer:
        _, estimate, lower, upper = self._family.published.answer(self._label)
        return self._family.published_answer._replace(estimate=estimate, lower=lower, upper=upper)

    @property
    def changed(self) -> asyncio.Event:
        return self._family.changed

    @property
    def spans(self) -> SpanReader | None:
        return self._family.spans

    def of_span(self, span: SpanCount) -> SpanCount:
        _, *numbers = self._family.labels_between(span.start, span.end).answer(self._label)
        estimate, lower, upper = whole(*numbers)
        return span._replace(lower=lower, estimate=estimate, upper=upper)


def label_of_family(by_name: Mapping[str, Readable], name: str) -> LabelView | None:
    """A label that is known, by the name of its series."""
    found = by_name.get(counter_of(name) or name)
    family = None if found is None else found.labels
    if family is None or family.label_of(name) not in family.published.counts:
        return None
    return LabelView(name, family)


class CounterSum(TotalOnly):
    """A counter with labelled series. The answer is that of the moment when it is first asked for."""

    def __init__(self, name: str, parts: Sequence[Readable]) -> None:
        self.name = name
        self._parts = parts

    @property
    def parts(self) -> Sequence[Readable]:
        return self._parts

    @cached_property
    def published_answer(self) -> TotalAnswer:
        answers = [part.published_answer for part in self.parts]
        numbers = [whole(answer.estimate, *answer.bounds) for answer in answers]  # sums of floats depend on their order
        estimate, lower, upper = (sum(each) for each in zip(*numbers, strict=True))
        largest = max(answers, key=lambda answer: answer.sites)  # how many sites there are in all is not known
        return TotalAnswer(
            estimate=estimate,
            lower=lower,
            upper=upper,
            alpha=max(answer.alpha for answer in answers),
            delta=sum(answer.delta for answer in answers),
            state=worst_state(answer.state for answer in answers),
            round=0,
            sites=largest.sites,
            scheme=largest.scheme,
            silent=max((answer.silent for answer in answers), key=len),
        )

    @property
    def changed(self) -> asyncio.Event:
        return self.parts[0].changed

    @property
    def health(self) -> SaveHealth:
        return self.parts[0].health

    @property
    def traffic(self) -> MessageCount:
        """That of the oldest part: the same object as long as there is this part."""
        return min((part.traffic for part in self.parts), key=lambda traffic: traffic.began)

    @property
    def windows(self) -> "WindowSum | None":
        """None if a part has none, or other ones, or if there are too many parts to add them up every second."""
        if len(self.parts) > MAX_SUMMED:
            return None
        parts = [part.windows for part in self.parts if part.windows is not None]
        return WindowSum(parts) if len(parts) == len(self.parts) and have_one_calendar(parts) else None


def have_one_calendar(parts: Sequence[WindowReader]) -> bool:
    return all(part.calendar.same_as(parts[0].calendar) for part in parts)


class ClosedSum:
    """The totals of the closed windows of several counters."""

    def __init__(self, parts: Sequence[ClosedTotals]) -> None:
        self._parts = parts
        self.first = min((part.first for part in parts if part.first is not None), default=None)

    def total_between(self, first: int, last: int) -> int:
        return sum(part.total_between(first, last) for part in self._parts)

    def youngest(self, limit: int) -> dict[int, int]:
        """The totals of the youngest windows of each part, by period."""
        totals = Tally[int]()
        for part in self._parts:
            totals.update(part.youngest(limit))
        return totals


class WindowSum:
    """The windows of several counters with the same calendar, as those of one counter."""

    adds_up = True

    def __init__(self, parts: Sequence[WindowReader]) -> None:
        self._parts = parts
        self.calendar = parts[0].calendar
        self.closed_windows = ClosedSum([part.closed_windows for part in parts])

    def now(self) -> float:
        return self._parts[0].now()

    @property
    def kept_from(self) -> int | None:
        """The first window that the part keeps that keeps the fewest."""
        return max((part.kept_from for part in self._parts if part.kept_from is not None), default=None)

    @property
    def most_not_kept(self) -> int:
        return sum(part.most_not_kept for part in self._parts)

    @property
    def complete_until(self) -> int:
        return min(part.complete_until for part in self._parts)

    def youngest(self, limit: int) -> list[Window]:
        """Those that all parts keep."""
        kept, complete, now = self.kept_from or 0, self.complete_until, self.now()
        closed = self.closed_windows.youngest(limit)
        found = {each.period: each for each in self.unsettled_windows(0)}
        listed = []
        for period in sorted({*closed, *found})[-limit:]:
            n = closed.get(period, 0)
            empty = Window(period, *self.calendar.bounds(period), 0, 0, 0, WindowState.CLOSED, 0, 0)
            window = found.get(period, empty)
            window = window._replace(lower=window.lower + n, estimate=window.estimate + n, upper=window.upper + n)
            if complete < window.end <= now:  # a part may have none there, but a site may have counted one
                window = window._replace(state=WindowState.INCOMPLETE)
            if window.start >= kept:
                listed.append(window)
        return listed

    def unsettled_windows(self, first: int) -> list[Window]:
        """A site that counts several parts is awaited, or lost, once."""
        return _sums(part.unsettled_windows(first) for part in self._parts)

    def sites_waited_for(self, period: int) -> list[str]:
        return sorted({site for part in self._parts for site in part.sites_waited_for(period)})


def _sums(parts: Iterable[Iterable[Window]]) -> list[Window]:
    sums: dict[int, Window] = {}
    for windows in parts:
        for window in windows:
            count = window._replace(lower=ceil(window.lower), upper=floor(window.upper))
            sums[window.period] = _sum(sums[window.period], count) if window.period in sums else count
    return [sums[period] for period in sorted(sums)]


def _sum(one: Window, other: Window) -> Window:
    states = (one.state, other.state)
    return one._replace(
        lower=one.lower + other.lower,
        estimate=one.estimate + other.estimate,
        upper=one.upper + other.upper,
        state=next(state for state in WindowState if state in states),
        lost=max(one.lost, other.lost),
        waiting=max(one.waiting, other.waiting),
    )


def by_counter(by_name: Mapping[str, Readable]) -> dict[str, Readable]:
    """One entry for each counter, however many labelled series it has, and for each family."""
    parts: defaultdict[str, list[Readable]] = defaultdict(list)
    for name, readable in by_name.items():
        parts[counter_of(name) or name].append(readable)
    return {name: as_one(name, found) for name, found in parts.items()}


def as_one(name: str, parts: Sequence[Readable]) -> Readable:
    """A counter without labels is itself."""
    return parts[0] if len(parts) == 1 and parts[0].name == name else CounterSum(name, parts)
