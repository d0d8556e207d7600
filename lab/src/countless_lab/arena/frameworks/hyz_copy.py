"""The oblivious copy that all three frameworks are built from: `hyz`, with one message for each report.

Steps come from the calibration of `hyz`. A synchronisation costs two messages for each site.
"""

from countless.planning.cache import PlanCache
from countless.planning.oblivious import ObliviousPlan
from countless.randomness import SeededRandom
from countless_lab.planning.hyz import plan_hyz

PLANS: PlanCache[ObliviousPlan] = PlanCache(plan_hyz)


class HyzRound:
    """Counts the events since it was created: samples each with probability 1/step, as `schemes/hyz.py` does."""

    def __init__(self, sites: int, step: int, rng: SeededRandom) -> None:
        self.step = max(1, step)
        self.estimate = 0
        self._rng = rng
        self._count = [0] * sites
        self._estimated = [0] * sites
        self._next = [rng.geometric(self.step) for _ in range(sites)]

    def events_until_report(self, site: int) -> int:
        return self._next[site] - self._count[site] - 1

    def add(self, site: int, n: int) -> bool:
        """`n` events, of which at most the last is reported; whether it was."""
        self._count[site] += n
        count = self._count[site]
        if count < self._next[site]:
            return False
        estimated = count + self.step - 1
        self.estimate += estimated - self._estimated[site]
        self._estimated[site] = estimated
        self._next[site] = count + self._rng.geometric(self.step)
        return True


class HyzCopy:
    """A whole oblivious tracker: exact at first, then round after round, each from an exact total."""

    def __init__(self, sites: int, alpha: float, eta: float, rng: SeededRandom) -> None:
        self._plan = PLANS.plan(sites, alpha, eta)
        self._sites = sites
        self._rng = rng
        self._total = self._round_start = 0
        self.sent = 0
        self._start_round()

    def _start_round(self) -> None:
        self._round_start = self._total
        step = self._plan.step(self._total)
        # While every event is reported the total is known without a synchronisation.
        self.sent += 2 * self._sites if step > 1 else 0
        self._round = HyzRound(self._sites, step, self._rng.spawn("stretch", self._total))
        self._reports_left = self._plan.reports if step > 1 else max(1, self._total)

    @property
    def step(self) -> int:
        return self._round.step

    @property
    def estimate(self) -> int:
        return self._round_start + self._round.estimate

    def events_until_report(self, site: int) -> int:
        return self._round.events_until_report(site)

    def add(self, site: int, n: int) -> None:
        self._total += n
        if self._round.add(site, n):
            self.sent += 1
            self._reports_left -= 1
            if not self._reports_left:
                self._start_round()
