"""Totals of the closed windows of one counter, in little memory: there may be a million of all counters together."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Fold = Callable[[Iterable[Any]], Any]  # the total of several windows together, from theirs; of none it is 0


class ClosedWindows:
    """By period. It does not change: the last three methods return another one, so readers may keep it.

    >>> closed = ClosedWindows([(5, 10), (7, 20)])
    >>> list(closed), closed.total, closed.get(5), closed.get(6)
    ([5, 7], 30, 10, None)
    >>> closed.total_between(5, 6), closed.total_between(6, 9)
    (10, 20)
    >>> list(closed.added(6, 1).without(7)), list(closed.without_oldest(1))
    ([5, 6], [7])
    """

    __slots__ = ("_fold", "_periods", "_totals", "total")
    total: int

    def __init__(self, windows: Iterable[tuple[int, int]] = (), fold: Fold = sum) -> None:
        """Periods with their totals, oldest first. `fold` says what they are together."""
        rows = list(windows)
        self._fold = fold
        self._set(array("q", [period for period, _ in rows]), [total for _, total in rows])

    def _set(self, periods: "array[int]", totals: list[int]) -> "ClosedWindows":
        self._periods, self._totals, self.total = periods, totals, self._fold(totals)
        return self

    def _with(self, periods: "array[int]", totals: list[int]) -> "ClosedWindows":
        return ClosedWindows(fold=self._fold)._set(periods, totals)

    def __len__(self) -> int:
        return len(self._periods)

    def __iter__(self) -> Iterator[int]:
        """Periods, oldest first."""
        return iter(self._periods)

    @property
    def first(self) -> int | None:
        """The oldest period; None if there is none."""
        return self._periods[0] if self._periods else None

    @property
    def last(self) -> int:
        """The youngest period; 0 if there is none."""
        return self._periods[-1] if self._periods else 0

    def get(self, period: int) -> int | None:
        index = bisect_left(self._periods, period)
        found = index < len(self._periods) and self._periods[index] == period
        return self._totals[index] if found else None

    def total_between(self, first: int, last: int) -> int:
        """That of the periods from `first` to `last`."""
        total: int = self._fold(self._totals[bisect_left(self._periods, first) : bisect_left(self._periods, last + 1)])
        return total

    def between(self, first: int, last: int) -> Iterator[int]:
        """The periods from `first` to `last`, oldest first."""
        return iter(self._periods[bisect_left(self._periods, first) : bisect_left(self._periods, last + 1)])

    def youngest(self, limit: int) -> dict[int, int]:
        """The totals of these windows, by period."""
        return dict(zip(self._periods[-limit:], self._totals[-limit:], strict=True))

    def last_before(self, period: int) -> int | None:
        """The total of the latest window before this one."""
        index = bisect_left(self._periods, period)
        return self._totals[index - 1] if index else None

    def added(self, period: int, total: int) -> "ClosedWindows":
        """With this window, which was not among them."""
        at = bisect_left(self._periods, period)
        return self._with(
            self._periods[:at] + array("q", [period]) + self._periods[at:],
            [*self._totals[:at], total, *self._totals[at:]],
        )

    def without(self, period: int) -> "ClosedWindows":
        at = bisect_left(self._periods, period)
        return self._with(self._periods[:at] + self._periods[at + 1 :], self._totals[:at] + self._totals[at + 1 :])

    def without_oldest(self, number: int) -> "ClosedWindows":
        return self._with(self._periods[number:], self._totals[number:])
