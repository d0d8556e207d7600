"""Negative controls with a flaw in the offsets of lattices. They use the plan of `lattice`: only the flaw differs."""

from collections.abc import Sequence

from countless.core.estimator import Effect, Estimator, RoundContext
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.planning.oblivious import ObliviousPlan
from countless.schemes.lattice import Lattice, LatticeEstimator
from countless.schemes.offsets import OffsetTable


class ZeroSource:
    def randbelow(self, n: int) -> int:
        return 0

    def geometric(self, step: int) -> int:
        return step  # no lattice draws it

    def random(self) -> float:
        return 0.0

    def spawn(self, *labels: str | int) -> "ZeroSource":
        return self


class Aligned(Lattice):
    """All offsets are zero: regular traffic gives every site the same error at the same time."""

    name = "aligned"

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return LatticeEstimator(OffsetTable(step, plan.sites, ZeroSource()), plan.reports)


class _Clipped(LatticeEstimator):
    def start(self, entries: Sequence[Entry], departed: int) -> None:
        points = (self._lattices[entry.slot].floor(entry.round_start) for entry in entries)
        self._points = departed + sum(max(0, point) for point in points)
        self._sites = len(entries)
        self._estimate()


class Clipping(Lattice):
    """Negative lattice points count as zero: every idle site then adds half a step to the estimate."""

    name = "clipping"

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return _Clipped(OffsetTable(step, plan.sites, rng), plan.reports)


class _ShortPhases(LatticeEstimator):
    """Publishes at secret thresholds, two steps apart on average, and never redraws an offset."""

    def __init__(self, lattices: OffsetTable, reports: int, rng: RandomSource) -> None:
        super().__init__(lattices, reports)
        self._thresholds = rng.spawn("thresholds")
        self._hidden = self._threshold = 0.0

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        super().start(entries, departed)
        self._hidden = self._threshold = self.estimate
        self._next_phase()

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        self.estimate, public = self._hidden, self.estimate
        effect = super().on_report(entry, before, crossings)
        self._hidden, self.estimate = self.estimate, public
        if self._hidden >= self._threshold and effect is not Effect.END_ROUND:
            self._next_phase()
        return effect

    def _next_phase(self) -> None:
        step = self._lattices.step
        while self._threshold <= self._hidden:
            self._threshold += step * (1.5 + self._thresholds.random())
        self.estimate = self._hidden + step


class Unredrawn(Lattice):
    """Secret thresholds as in `dithered`, but a site whose report ends a phase keeps its offset."""

    name = "unredrawn"

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return _ShortPhases(OffsetTable(step, plan.sites, rng.spawn("offsets")), plan.reports, rng)
