"""A counter, or a family, with windows as readers see it: as it was saved last."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from countless.core.answer import Answer
from countless.core.calendar import Calendar
from countless.core.messages import SiteId
from countless.core.periods.window import TotalAnswer, Window, WindowState, total_answer
from countless.server.sessions.closed_windows import ClosedWindows
from countless.server.sessions.lost_sites import LostSites

Members = Callable[[int], Iterable[SiteId]]  # of a window that is open


class PublishedWindows(NamedTuple):
    largest: float  # the largest estimate of the total so far
    open: Mapping[int, Answer | TotalAnswer]  # by period, oldest first
    closed: ClosedWindows
    losses: LostSites
    first: int  # earlier windows are not kept
    dropped: int  # their total

    def total(self, alpha: float, delta: float, scheme: str) -> TotalAnswer:
        settled, answers = self.dropped + self.closed.total, list(self.open.values())
        return total_answer(settled, answers, self.largest, alpha=alpha, delta=delta, scheme=scheme)

    def periods(self, present: int, first: int = 0, last: int | None = None) -> list[int]:
        """The present window and all that are kept and may have a count, from `first` to `last`; oldest first."""
        first = max(first, self.first)
        last = max(present, self.closed.last, *self.open) if last is None else last
        lost = self.losses.periods(first, min(last, present))
        periods = {*self.closed.between(first, last), *lost, *self.open, present}
        return sorted(period for period in periods if first <= period <= last)

    def windows(self, periods: list[int], calendar: Calendar, present: int, members: Members) -> Iterator[Window]:
        """These windows, which are given oldest first."""
        waiting, silent, open_periods = set[SiteId](), set[str](), iter(self.open)
        next_open = next(open_periods, None)
        for period, lost in zip(periods, self.losses.at(periods), strict=True):
            ended = period < present
            while next_open is not None and next_open <= period:
                waiting.update(members(next_open) if ended else ())
                silent.update(map(str, self.open[next_open].silent))
                next_open = next(open_periods, None)
            answer, total = self.open.get(period), self.closed.get(period) or 0
            estimate = answer.estimate if answer else total
            lower, upper = answer.bounds if answer else (total, total)
            state = self.state(period, lost) if ended else WindowState.OPEN
            start, end = calendar.bounds(period)
            yield Window(period, start, end, lower, estimate, upper, state, lost, len(waiting if ended else silent))

    def state(self, period: int, lost: int) -> WindowState:
        """The state of a window that has ended."""
        closed = not lost and all(each > period for each in self.open)
        return WindowState.CLOSED if closed else WindowState.INCOMPLETE
