"""The oblivious copy that all three frameworks are built from: one stretch of `hyz` (SPEC 5).

A stretch starts at a known total, samples every event with probability 1/step, and estimates each site by
its last report, as `schemes/hyz.py` does; here without rounds, because the frameworks say themselves when
a copy starts and ends. `Tracker` strings stretches together into a tracker that synchronises when its plan
says so. One message is one report, or one of the two that a synchronisation costs a site. Steps come from
the calibration of `hyz`; nothing is computed here.
"""

from countless.planning.cache import PlanCache
from countless.planning.hyz import plan_hyz
from countless.planning.oblivious import ObliviousPlan
from countless.randomness import SeededRandom

_BOOK: PlanCache[ObliviousPlan] = PlanCache(plan_hyz)


class HyzRound:
    """One copy over one stretch of the stream: the events since it began."""

    def __init__(self, sites: int, step: int, rng: SeededRandom) -> None:
        self.step = max(1, step)
        self.estimate = 0
        self.reports = 0
        self._rng = rng
        self._count = [0] * sites
        self._said = [0] * sites
        self._next = [rng.geometric(self.step) for _ in range(sites)]

    def events_until_report(self, site: int) -> int:
        """Events before this site speaks."""
        return self._next[site] - self._count[site] - 1

    def add(self, site: int, n: int) -> bool:
        """`n` events, of which at most the last is reported; whether it was."""
        self._count[site] += n
        count = self._count[site]
        if count < self._next[site]:
            return False
        said = count + self.step - 1
        self.estimate += said - self._said[site]
        self._said[site] = said
        self._next[site] = count + self._rng.geometric(self.step)
        self.reports += 1
        return True


class HyzCopy:
    """A whole oblivious tracker: exact at first, then stretch after stretch, each from an exact total."""

    def __init__(self, sites: int, alpha: float, eta: float, rng: SeededRandom) -> None:
        self._plan = _BOOK.plan(sites, alpha, eta)
        self._sites = sites
        self._rng = rng
        self._total = self._base = 0
        self.sent = 0
        self._open()

    def _open(self) -> None:
        self._base = self._total
        step = self._plan.step(self._total)
        # While every event is reported the total is known and nobody need be asked.
        self.sent += 2 * self._sites if step > 1 else 0
        self._hyz_round = HyzRound(self._sites, step, self._rng.spawn("stretch", self._total))
        self._left = self._plan.reports if step > 1 else max(1, self._total)

    @property
    def estimate(self) -> int:
        """The estimate of the total."""
        return self._base + self._hyz_round.estimate

    def events_until_report(self, site: int) -> int:
        """Events before this site speaks."""
        return self._hyz_round.events_until_report(site)

    def add(self, site: int, n: int) -> None:
        """`n` events, of which at most the last is reported."""
        self._total += n
        if self._hyz_round.add(site, n):
            self.sent += 1
            self._left -= 1
            if not self._left:
                self._open()
