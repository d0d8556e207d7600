"""Negative controls whose published estimate discloses single reports."""

from dataclasses import replace
from fractions import Fraction

from countless.core.estimator import Effect, Estimator, RoundContext
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.planning.dithered_plan import DitheredPlan
from countless.planning.oblivious import ObliviousPlan
from countless.privacy.noise import RandomSourceNoise
from countless.schemes.dithered import Dithered, DitheredEstimator
from countless.schemes.lattice import Lattice, LatticeEstimator
from countless.schemes.offsets import OffsetTable


class _Noisy(LatticeEstimator):
    def __init__(self, lattices: OffsetTable, reports: int, rng: RandomSource) -> None:
        super().__init__(lattices, reports)
        self._noise = RandomSourceNoise(rng.spawn("noise"))

    def _estimate(self) -> None:
        super()._estimate()
        self.estimate += self._noise.laplace(Fraction(self._lattices.step, 2))


class FreshNoise(Lattice):
    """Adds new noise of about half a step to every estimate: it averages out over many estimates."""

    name = "fresh-noise"

    def plans(self, context: RoundContext, may_block: bool) -> list[ObliviousPlan]:
        """With 8 more steps of allowance for the noise, 16 times its scale."""
        return [replace(plan, allowance=plan.allowance + 8) for plan in super().plans(context, may_block)]

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return _Noisy(OffsetTable(step, plan.sites, rng), plan.reports, rng)


class _CountsReports(DitheredEstimator):
    def __init__(self, plan: DitheredPlan, step: int, rng: RandomSource) -> None:
        super().__init__(plan, step, rng)
        self._reports = 0

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        effect = super().on_report(entry, before, crossings)
        self._reports += crossings
        self._announce()
        self.estimate += self._reports / 2**20
        return effect

    def _announce(self) -> None:
        if self._phase < len(self._plan.phases):
            super()._announce()


class Leaking(Dithered):
    """`dithered`, but the number of reports is visible in the last digits of the estimate."""

    name = "leaking"

    def estimator(self, plan: DitheredPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return _CountsReports(plan, step, rng)
