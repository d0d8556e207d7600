"""A counter with labelled series as one counter, for the page and its history: the sum of its parts."""

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import ceil, floor
from typing import Any, NamedTuple

from countless.core.answer import whole, worst_state
from countless.core.periods.window import TotalAnswer, Window, WindowState
from countless.server.kinds.windowed_counter import AnyCounter, WindowedCounter
from countless.server.sessions.closed_windows import ClosedWindows
from countless.server.sessions.periodic import Periodic
from countless.server.sessions.tracked import MessageCount
from countless.wire.keys import counter_of

MAX_SUMMED = 200  # series whose windows a page adds up; of more it shows what was recorded of their sum


class _NoRounds(NamedTuple):
    phase: None = None


class CounterSum:
    """Made for one reading: the answer is that of the moment when it is first asked for."""

    coordinator = _NoRounds()

    def __init__(self, name: str, parts: Sequence[AnyCounter]) -> None:
        self.name = name
        self.parts = parts

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
    def traffic(self) -> MessageCount:
        """That of the oldest part: the same object as long as there is this part."""
        return min((part.traffic for part in self.parts), key=lambda traffic: traffic.began)

    @property
    def windows(self) -> "WindowSum | None":
        """None if a part has none, or other ones, or if there are too many parts to add them up every second."""
        parts = [part for part in self.parts if isinstance(part, WindowedCounter)]
        if not len(self.parts) == len(parts) <= MAX_SUMMED:
            return None
        return WindowSum(parts) if all(part.calendar.same_as(parts[0].calendar) for part in parts) else None

    @property
    def messages(self) -> int:
        return sum(part.traffic.up + part.traffic.down for part in self.parts)


class ClosedSum:
    """The totals of the closed windows of several counters."""

    def __init__(self, parts: Sequence[ClosedWindows]) -> None:
        self._parts = parts
        self.first = min((part.first for part in parts if part.first is not None), default=None)

    def total_between(self, first: int, last: int) -> int:
        return sum(part.total_between(first, last) for part in self._parts)


class WindowSum:
    """The windows of several counters with the same calendar, as those of one counter."""

    def __init__(self, parts: Sequence[Periodic[Any]]) -> None:
        self._parts = parts
        self.calendar = parts[0].calendar
        self.closed_windows = ClosedSum([part.closed_windows for part in parts])
        self.traffic = min((part.traffic for part in parts), key=lambda traffic: traffic.began)

    @property
    def kept_from(self) -> int | None:
        """Of the part that keeps the fewest."""
        return max((part.kept_from for part in self._parts if part.kept_from is not None), default=None)

    @property
    def most_not_kept(self) -> int:
        return sum(part.most_not_kept for part in self._parts)

    @property
    def complete_until(self) -> int:
        return min(part.complete_until for part in self._parts)

    def windows(self, limit: int) -> list[Window]:
        """The youngest that all parts keep, oldest first."""
        kept, complete, now = self.kept_from or 0, self.complete_until, self._parts[0].now()
        closed = Tally[int]()
        for part in self._parts:
            closed.update(part.closed_windows.youngest(limit))
        found = {each.period: each for each in self.unsettled_windows(0)}
        listed = []
        for period in sorted({*closed, *found})[-limit:]:
            n = closed[period]
            empty = Window(period, *self.calendar.bounds(period), 0, 0, 0, WindowState.CLOSED, 0, 0)
            window = found.get(period, empty)
            window = window._replace(lower=window.lower + n, estimate=window.estimate + n, upper=window.upper + n)
            if complete < window.end <= now:  # a part may have none there, but a site may have counted one
                window = window._replace(state=WindowState.INCOMPLETE)
            if window.start >= kept:
                listed.append(window)
        return listed

    def unsettled_windows(self, first: int) -> list[Window]:
        """See `Periodic`. A site that counts several parts is awaited, or lost, once."""
        return _sums(part.unsettled_windows(first) for part in self._parts)


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


def by_counter(counters: Mapping[str, AnyCounter]) -> dict[str, AnyCounter | CounterSum]:
    """One entry for each counter, however many labelled series it has."""
    parts: defaultdict[str, list[AnyCounter]] = defaultdict(list)
    for name, counter in counters.items():
        parts[counter_of(name) or name].append(counter)
    return {name: as_one(name, found) for name, found in parts.items()}


def as_one(name: str, parts: Iterable[AnyCounter]) -> AnyCounter | CounterSum:
    """A counter without labels is itself."""
    found = list(parts)
    return found[0] if len(found) == 1 and found[0].name == name else CounterSum(name, found)
