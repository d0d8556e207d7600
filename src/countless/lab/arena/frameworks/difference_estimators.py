"""Difference estimators over `hyz` (SPEC 5; Woodruff, Zhou 2022)."""

from math import ceil, log2

from countless.lab.arena.frameworks.framework import Framework
from countless.lab.arena.frameworks.hyz_copy import _BOOK, HyzRound


class _Level:
    """The running estimator of one level, and the frozen value of its last finished block."""

    def __init__(self, stretch: HyzRound) -> None:
        self.stretch = stretch
        self.value = 0


class DifferenceEstimators(Framework):
    """While the total doubles from F to 2F it is cut into blocks of alpha F/2; level j has an estimator
    for each run of 2^j.

    Finished blocks are summed in dyadic groups, so the answer is F plus at most one frozen value per level
    plus the running block, each within its share of the error. Every site and the coordinator must agree
    when a block starts: that costs 2k messages for every block, so at least `2k * 2/alpha` for each
    doubling, which is what the paper holds against it.
    """

    scheme = "difference estimators"

    def __init__(self, sites: int, alpha: float, delta: float, horizon: int, seed: int) -> None:
        super().__init__(sites, alpha, delta, horizon, seed)
        self._levels_needed = ceil(log2(2 / alpha)) + 1
        self._share = alpha / (2 * self._levels_needed)
        self._eta = delta / (64 * self._levels_needed * ceil(4 / alpha))
        self._sent = self._reports = 0
        self.synchronisations = 0
        self._double()

    def _double(self) -> None:
        """The total is known exactly: start a new doubling."""
        self._start = max(self.total, ceil(8 / self.alpha))
        self._exact = self.total < self._start
        self._base = self.total
        self._block = 0
        self._frozen = 0
        self._levels: list[_Level] = []
        if not self._exact:
            self._synchronise()
            self._levels = [_Level(self._hyz_round(level)) for level in range(self._levels_needed)]

    def _synchronise(self) -> None:
        self._sent += 2 * self.sites
        self.synchronisations += 1

    def _hyz_round(self, level: int) -> HyzRound:
        step = _BOOK.plan(self.sites, self._share, self._eta).step(self._start)
        return HyzRound(self.sites, step, self._rng.spawn("level", level, self.total))

    @property
    def sent(self) -> int:
        """Messages so far."""
        return self._sent

    def events_until_report(self, site: int) -> int:
        """Until the first level speaks."""
        if self._exact:
            return 0
        return min(level.stretch.events_until_report(site) for level in self._levels)

    def add(self, site: int, n: int) -> None:
        """Feed every level; the lowest one says when its block is over."""
        self.total += n
        if self._exact:
            self._sent += 1
            self._publish(self.total)
            if self.total >= self._start:
                self._double()
            return
        for level in self._levels:
            self._sent += level.stretch.add(site, n)
        block = self.alpha / 2 * self._start
        if self._levels[0].stretch.estimate >= block:
            self._end_block()

    def _end_block(self) -> None:
        """Freeze the level whose run of blocks has just ended; all lower levels begin again with the next
        block.
        """
        self._block += 1
        ended = (self._block & -self._block).bit_length() - 1
        if ended >= self._levels_needed or self._block * self.alpha / 2 >= 1:
            self._double()
            self._publish(self.total)
            return
        for lower in range(ended):
            self._levels[lower].value = 0
        self._levels[ended].value = self._levels[ended].stretch.estimate
        self._synchronise()
        for level in range(ended + 1):
            self._levels[level].stretch = self._hyz_round(level)
        self._publish(self._base + sum(level.value for level in self._levels) + self.alpha / 4 * self._start)
