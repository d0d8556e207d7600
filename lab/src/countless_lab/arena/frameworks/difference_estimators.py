"""Difference estimators over `hyz` (Woodruff, Zhou 2022)."""

from math import ceil, log2

from countless_lab.arena.frameworks.framework import Framework
from countless_lab.arena.frameworks.hyz_copy import PLANS, HyzRound


class _Level:
    """The running estimator of one level, and the value of its last finished block."""

    def __init__(self, round: HyzRound) -> None:
        self.round = round
        self.value = 0


class DifferenceEstimators(Framework):
    """While the total doubles from F to 2F it is divided into blocks of alpha F/2; level j has an estimator for each
    run of 2^j blocks.

    Finished blocks are summed in dyadic groups, so the estimate is F plus at most one finished value per level plus
    the running block, each within its share of the error. Every site and the coordinator must agree when a block
    starts: that costs 2k messages for every block, so at least `2k * 2/alpha` for each doubling.
    """

    scheme = "difference estimators"

    def __init__(self, sites: int, alpha: float, delta: float, horizon: int, seed: int) -> None:
        super().__init__(sites, alpha, delta, horizon, seed)
        self._levels_needed = ceil(log2(2 / alpha)) + 1
        self._share = alpha / (2 * self._levels_needed)
        self._eta = delta / (64 * self._levels_needed * ceil(4 / alpha))
        self._sent = 0
        self.synchronisations = 0
        self._double()

    def _double(self) -> None:
        """Start a new doubling from the exact total."""
        self._start = max(self.total, ceil(8 / self.alpha))
        self._exact = self.total < self._start
        self._base = self.total
        self._block = 0
        self._levels: list[_Level] = []
        if not self._exact:
            self._synchronise()
            self._levels = [_Level(self._new_round(level)) for level in range(self._levels_needed)]

    def _synchronise(self) -> None:
        self._sent += 2 * self.sites
        self.synchronisations += 1

    def _new_round(self, level: int) -> HyzRound:
        step = PLANS.plan(self.sites, self._share, self._eta).step(self._start)
        return HyzRound(self.sites, step, self._rng.spawn("level", level, self.total))

    @property
    def sent(self) -> int:
        return self._sent

    @property
    def randomised(self) -> bool:
        return any(level.round.step > 1 for level in self._levels)

    def events_until_report(self, site: int) -> int:
        if self._exact:
            return 0
        return min(level.round.events_until_report(site) for level in self._levels)

    def add(self, site: int, n: int) -> None:
        self.total += n
        if self._exact:
            self._sent += 1
            self._publish(self.total)
            if self.total >= self._start:
                self._double()
            return
        for level in self._levels:
            self._sent += level.round.add(site, n)
        block = self.alpha / 2 * self._start
        if self._levels[0].round.estimate >= block:
            self._end_block()

    def _end_block(self) -> None:
        """Keep the value of the level whose run of blocks has ended; restart all lower levels."""
        self._block += 1
        ended = (self._block & -self._block).bit_length() - 1
        if ended >= self._levels_needed or self._block * self.alpha / 2 >= 1:
            self._double()
            self._publish(self.total)
            return
        for lower in range(ended):
            self._levels[lower].value = 0
        self._levels[ended].value = self._levels[ended].round.estimate
        self._synchronise()
        for level in range(ended + 1):
            self._levels[level].round = self._new_round(level)
        self._publish(self._base + sum(level.value for level in self._levels) + self.alpha / 4 * self._start)
