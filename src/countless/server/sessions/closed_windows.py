"""Closed windows of one counter, in little memory: there may be a million of all counters together."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Closed(NamedTuple):
    total: int
    lost: int = 0  # sites that ended without saying how much they had counted


class ClosedWindows:
    """Closed windows by period. It does not change: the last four methods return another one, so readers may keep it.

    >>> closed = ClosedWindows([(5, Closed(10, 1)), (7, Closed(20))])
    >>> list(closed), closed.total, closed.get(5), closed.get(6)
    ([5, 7], 30, Closed(total=10, lost=1), None)
    >>> list(closed.replaced(6, Closed(1)).without(7)), list(closed.without_oldest(1))
    ([5, 6], [7])
    """

    __slots__ = ("_lost", "_periods", "_totals", "total")

    def __init__(self, windows: Iterable[tuple[int, Closed]] = ()) -> None:
        """They are given oldest first."""
        rows = list(windows)
        self._set(
            array("q", [period for period, _ in rows]),
            [closed.total for _, closed in rows],
            {period: closed.lost for period, closed in rows if closed.lost},
        )

    def _set(self, periods: "array[int]", totals: list[int], lost: dict[int, int]) -> "ClosedWindows":
        self._periods, self._totals, self._lost = periods, totals, lost
        self.total = sum(totals)
        return self

    def __len__(self) -> int:
        return len(self._periods)

    def __iter__(self) -> Iterator[int]:
        """Their periods, oldest first."""
        return iter(self._periods)

    def get(self, period: int) -> Closed | None:
        index = bisect_left(self._periods, period)
        if index == len(self._periods) or self._periods[index] != period:
            return None
        return Closed(self._totals[index], self._lost.get(period, 0))

    def between(self, first: int, last: int) -> Iterator[tuple[int, Closed]]:
        """Those from `first` to `last`, oldest first."""
        for index in range(bisect_left(self._periods, first), bisect_left(self._periods, last + 1)):
            period = self._periods[index]
            yield period, Closed(self._totals[index], self._lost.get(period, 0))

    def last_before(self, period: int) -> Closed | None:
        index = bisect_left(self._periods, period)
        return self.get(self._periods[index - 1]) if index else None

    def replaced(self, period: int, closed: Closed) -> "ClosedWindows":
        """With this window, and without any other of the same period."""
        return self._spliced(period, array("q", [period]), [closed.total], {period: closed.lost} if closed.lost else {})

    def updated(self, windows: Mapping[int, Closed]) -> "ClosedWindows":
        """Like `replaced`, with many."""
        rows = dict(self.between(self._periods[0], self._periods[-1])) if self._periods else {}
        return ClosedWindows(sorted({**rows, **windows}.items()))

    def without(self, period: int) -> "ClosedWindows":
        return self._spliced(period, array("q"), [], {})

    def without_oldest(self, number: int) -> "ClosedWindows":
        lost = {period: lost for period, lost in self._lost.items() if period not in self._periods[:number]}
        return ClosedWindows()._set(self._periods[number:], self._totals[number:], lost)

    def _spliced(self, at: int, periods: "array[int]", totals: list[int], lost: dict[int, int]) -> "ClosedWindows":
        start, end = bisect_left(self._periods, at), bisect_left(self._periods, at + 1)
        others = {period: lost for period, lost in self._lost.items() if period != at}
        return ClosedWindows()._set(
            self._periods[:start] + periods + self._periods[end:],
            self._totals[:start] + totals + self._totals[end:],
            others | lost,
        )
