"""Strawmen on lattices (SPEC 7): each leaves out one thing that `lattice` or `dithered` does, and pays for
it.

They take the plan of `lattice`, so that nothing but the omission tells them apart. None of them is for use.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from countless.core.estimator import END_ROUND, Effect, Estimator, RoundContext
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import OffsetMultiple
from countless.planning.oblivious import ObliviousPlan
from countless.privacy.noise import RandomSourceNoise
from countless.schemes.lattice import Lattice, LatticeEstimator
from countless.schemes.offsets import OffsetTable


class NoDice:
    """Falls on zero, always."""

    def randbelow(self, n: int) -> int:
        """Zero."""
        return 0

    def randbelow_many(self, n: int, times: int) -> list[int]:
        """Zeros."""
        return [0] * times

    def geometric(self, step: int) -> int:
        """Never drawn by a lattice."""
        return step

    def random(self) -> float:
        """Zero."""
        return 0.0

    def spawn(self, *labels: str | int) -> "NoDice":
        """Itself."""
        return self


class Aligned(Lattice):
    """All lattices start at zero: regular traffic makes every site err in the same way at the same time."""

    name = "aligned"

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        """No offsets."""
        return LatticeEstimator(OffsetTable(step, plan.sites, NoDice()), plan.reports)


class Thrifty(Lattice):
    """Believes that the errors of many sites cancel altogether, and takes ten times the step that is
    proved.
    """

    name = "thrifty"

    def plans(self, context: RoundContext, may_block: bool) -> list[ObliviousPlan]:
        """A tenth of the allowance."""
        return [replace(plan, allowance=plan.allowance / 10) for plan in super().plans(context, may_block)]


class _Clipped(LatticeEstimator):
    def open(self, entries: Sequence[Entry], departed: int) -> None:
        self._points = departed + sum(max(0, self.trigger_at(entry.slot).floor(entry.round_start)) for entry in entries)
        self._sites = len(entries)
        self._estimate()

    def trigger_at(self, slot: int) -> OffsetMultiple:
        return self._lattices[slot]


class Clipping(Lattice):
    """Finds negative lattice points absurd and takes them for zero: every idle site then counts for half a
    step.
    """

    name = "clipping"

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        """As `lattice`, clipped."""
        return _Clipped(OffsetTable(step, plan.sites, rng), plan.reports)


class _Noisy(LatticeEstimator):
    def __init__(self, lattices: OffsetTable, reports: int, rng: RandomSource) -> None:
        super().__init__(lattices, reports)
        self._noise = RandomSourceNoise(rng.spawn("noise"))

    def _estimate(self) -> None:
        super()._estimate()
        self.estimate += self._noise.laplace(Fraction(self._lattices.step, 2))


class FreshNoise(Lattice):
    """Adds fresh noise of about half a step to every answer, and thinks that a single report can no longer
    be seen.
    """

    name = "fresh-noise"

    def plans(self, context: RoundContext, may_block: bool) -> list[ObliviousPlan]:
        """Room for the noise: 8 steps are 16 times its scale."""
        return [replace(plan, allowance=plan.allowance + 8) for plan in super().plans(context, may_block)]

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        """As `lattice`, with noise."""
        return _Noisy(OffsetTable(step, plan.sites, rng), plan.reports, rng)


class _Inheriting(LatticeEstimator):
    def __init__(self, lattices: OffsetTable, reports: int, inherited: float | None) -> None:
        super().__init__(lattices, reports)
        self._inherited = inherited

    def open(self, entries: Sequence[Entry], departed: int) -> None:
        super().open(entries, departed)
        if self._inherited is not None:
            self._points += round(self._inherited - self.estimate)
            self._estimate()


class Drifting(Lattice):
    """Starts each round from its own last estimate instead of the exact total: errors of all rounds add
    up.
    """

    name = "drifting"

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        """The estimate that the last round ended with stands for the total."""
        last = None if context.running is None else context.running.estimator.estimate
        return _Inheriting(OffsetTable(step, plan.sites, rng), plan.reports, last)


class _ShortPhases(LatticeEstimator):
    """Publishes at secret thresholds, two steps apart on average, and never redraws an offset."""

    def __init__(self, lattices: OffsetTable, reports: int, rng: RandomSource) -> None:
        super().__init__(lattices, reports)
        self._thresholds = rng.spawn("thresholds")
        self._hidden = self._threshold = 0.0

    def open(self, entries: Sequence[Entry], departed: int) -> None:
        super().open(entries, departed)
        self._hidden = self._threshold = self.estimate
        self._move_on()

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        self.estimate, public = self._hidden, self.estimate
        effect = super().on_report(entry, before, crossings)
        self._hidden, self.estimate = self.estimate, public
        if self._hidden >= self._threshold and effect is not END_ROUND:
            self._move_on()
        return effect

    def _move_on(self) -> None:
        step = self._lattices.step
        while self._threshold <= self._hidden:
            self._threshold += step * (1.5 + self._thresholds.random())
        self.estimate = self._hidden + step


class Unredrawn(Lattice):
    """Secret thresholds as in `dithered`, at the price of `lattice`: a site that ends a phase keeps its
    offset.
    """

    name = "unredrawn"

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        """Short phases over lattices that stay."""
        return _ShortPhases(OffsetTable(step, plan.sites, rng.spawn("offsets")), plan.reports, rng)
