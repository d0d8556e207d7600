"""Strawmen on lattices (SPEC 7): each leaves out one thing that `lattice` or `dithered` does, and pays for
it.

They take the plan of `lattice`, so that nothing but the omission tells them apart. None of them is for use.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from countless.core.estimator import OVER, Case, Consequence, Publisher
from countless.core.ledger import Entry
from countless.core.random_source import Dice
from countless.core.triggers import Lattice as LatticePace
from countless.planning.oblivious import ObliviousPlan
from countless.privacy.noise import DiceNoise
from countless.schemes.lattice import Lattice, LatticePoints
from countless.schemes.offsets import Lattices


class NoDice:
    """Falls on zero, always."""

    def below(self, n: int) -> int:
        """Zero."""
        return 0

    def many_below(self, n: int, times: int) -> list[int]:
        """Zeros."""
        return [0] * times

    def gap(self, step: int) -> int:
        """Never drawn by a lattice."""
        return step

    def fraction(self) -> float:
        """Zero."""
        return 0.0

    def split(self, *labels: str | int) -> "NoDice":
        """Itself."""
        return self


class Aligned(Lattice):
    """All lattices start at zero: regular traffic makes every site err in the same way at the same time."""

    name = "aligned"

    def publisher(self, plan: ObliviousPlan, step: int, case: Case, dice: Dice) -> Publisher:
        """No offsets."""
        return LatticePoints(Lattices(step, plan.sites, NoDice()), plan.reports)


class Thrifty(Lattice):
    """Believes that the errors of many sites cancel altogether, and takes ten times the step that is
    proved.
    """

    name = "thrifty"

    def plans(self, case: Case, patient: bool) -> list[ObliviousPlan]:
        """A tenth of the allowance."""
        return [replace(plan, allowance=plan.allowance / 10) for plan in super().plans(case, patient)]


class _Clipped(LatticePoints):
    def open(self, entries: Sequence[Entry], departed: int) -> None:
        self._points = departed + sum(max(0, self.pace_at(entry.slot).floor(entry.base)) for entry in entries)
        self._sites = len(entries)
        self._estimate()

    def pace_at(self, slot: int) -> LatticePace:
        return self._lattices[slot]


class Clipping(Lattice):
    """Finds negative lattice points absurd and takes them for zero: every idle site then counts for half a
    step.
    """

    name = "clipping"

    def publisher(self, plan: ObliviousPlan, step: int, case: Case, dice: Dice) -> Publisher:
        """As `lattice`, clipped."""
        return _Clipped(Lattices(step, plan.sites, dice), plan.reports)


class _Noisy(LatticePoints):
    def __init__(self, lattices: Lattices, reports: int, dice: Dice) -> None:
        super().__init__(lattices, reports)
        self._noise = DiceNoise(dice.split("noise"))

    def _estimate(self) -> None:
        super()._estimate()
        self.estimate += self._noise.laplace(Fraction(self._lattices.step, 2))


class FreshNoise(Lattice):
    """Adds fresh noise of about half a step to every answer, and thinks that a single report can no longer
    be seen.
    """

    name = "fresh-noise"

    def plans(self, case: Case, patient: bool) -> list[ObliviousPlan]:
        """Room for the noise: 8 steps are 16 times its scale."""
        return [replace(plan, allowance=plan.allowance + 8) for plan in super().plans(case, patient)]

    def publisher(self, plan: ObliviousPlan, step: int, case: Case, dice: Dice) -> Publisher:
        """As `lattice`, with noise."""
        return _Noisy(Lattices(step, plan.sites, dice), plan.reports, dice)


class _Inheriting(LatticePoints):
    def __init__(self, lattices: Lattices, reports: int, inherited: float | None) -> None:
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

    def publisher(self, plan: ObliviousPlan, step: int, case: Case, dice: Dice) -> Publisher:
        """The estimate that the last round ended with stands for the total."""
        last = None if case.running is None else case.running.publisher.estimate
        return _Inheriting(Lattices(step, plan.sites, dice), plan.reports, last)


class _ShortPhases(LatticePoints):
    """Publishes at secret thresholds, two steps apart on average, and never redraws an offset."""

    def __init__(self, lattices: Lattices, reports: int, dice: Dice) -> None:
        super().__init__(lattices, reports)
        self._thresholds = dice.split("thresholds")
        self._hidden = self._threshold = 0.0

    def open(self, entries: Sequence[Entry], departed: int) -> None:
        super().open(entries, departed)
        self._hidden = self._threshold = self.estimate
        self._move_on()

    def hear(self, entry: Entry, before: int, crossings: int) -> Consequence | None:
        self.estimate, public = self._hidden, self.estimate
        consequence = super().hear(entry, before, crossings)
        self._hidden, self.estimate = self.estimate, public
        if self._hidden >= self._threshold and consequence is not OVER:
            self._move_on()
        return consequence

    def _move_on(self) -> None:
        step = self._lattices.step
        while self._threshold <= self._hidden:
            self._threshold += step * (1.5 + self._thresholds.fraction())
        self.estimate = self._hidden + step


class Unredrawn(Lattice):
    """Secret thresholds as in `dithered`, at the price of `lattice`: a site that ends a phase keeps its
    offset.
    """

    name = "unredrawn"

    def publisher(self, plan: ObliviousPlan, step: int, case: Case, dice: Dice) -> Publisher:
        """Short phases over lattices that stay."""
        return _ShortPhases(Lattices(step, plan.sites, dice.split("offsets")), plan.reports, dice)
