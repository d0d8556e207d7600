"""Sites that were lost to windows of a counter: they ended without saying how much they had counted.

A site that is a member of window 5 when it becomes unreachable, and is retired in window 9, may have counted in all
windows from 5 to 9. That is one entry: {5: Loss(1, 9)}.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Loss(NamedTuple):
    """So many sites, in the window under which it is saved and, perhaps, in the later ones until this."""

    sites: int
    until: int

    def merged(self, other: "Loss | None") -> "Loss":
        return self if other is None else Loss(self.sites + other.sites, max(self.until, other.until))


class LostSites:
    """By the first period of each. It does not change, like `ClosedWindows`.

    >>> losses = LostSites().added(5, Loss(1, 9)).added(8, Loss(2, 8))
    >>> list(losses.at([4, 5, 8, 9, 10]))
    [0, 1, 3, 1, 0]
    >>> list(losses.moved(5, 7).at([5, 7, 8]))
    [0, 1, 3]
    """

    __slots__ = ("_by_period",)

    def __init__(self, by_period: dict[int, Loss] | None = None) -> None:
        self._by_period = by_period or {}

    def get(self, period: int) -> Loss | None:
        return self._by_period.get(period)

    def at(self, periods: Iterable[int]) -> Iterator[int]:
        """The number of sites, at most, that each of these windows has lost. The periods are in order."""
        coming = iter(sorted(self._by_period.items()))
        following = next(coming, None)
        active: list[Loss] = []
        for period in periods:
            while following is not None and following[0] <= period:
                active.append(following[1])
                following = next(coming, None)
            active = [loss for loss in active if loss.until >= period]
            yield sum(loss.sites for loss in active)

    def periods(self, first: int, last: int) -> set[int]:
        """All windows from `first` to `last` that have lost a site."""
        spans = ((max(first, start), min(last, loss.until)) for start, loss in self._by_period.items())
        return {period for start, end in spans for period in range(start, end + 1)}

    def added(self, period: int, loss: Loss) -> "LostSites":
        return LostSites({**self._by_period, period: loss.merged(self.get(period))})

    def moved(self, period: int, later: int | None) -> "LostSites":
        """The window `period` is not kept any more, and `later` is the next that is; None: there is none."""
        loss = self.get(period)
        if loss is None:
            return self
        others = LostSites({each: other for each, other in self._by_period.items() if each != period})
        return others if later is None or loss.until < later else others.added(later, loss)
