"""The negative controls by name: trackers with one known flaw each. None of them is for use.

An adversary that finds no violation elsewhere must find one here. Controls derived from `Lattice` use its plan: only
the flaw differs.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import sqrt

from countless.core.estimator import Effect, Estimator, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import GeometricGrowth, Trigger
from countless.planning.oblivious import ObliviousPlan
from countless.privacy.noise import RandomSourceNoise
from countless.schemes.dithered import Dithered, DitheredEstimator
from countless.schemes.lattice import Lattice, LatticeEstimator
from countless.schemes.offsets import OffsetTable
from countless_lab.schemes.hyz import Hyz

# The step is larger than what is proved


class Thrifty(Lattice):
    """A tenth of the allowance, so ten times the step: the errors of many sites do not cancel that well."""

    name = "thrifty"

    def plans(self, context: RoundContext, may_block: bool) -> list[ObliviousPlan]:
        return [replace(plan, allowance=plan.allowance / 10) for plan in super().plans(context, may_block)]


class HyzClassical(Hyz):
    """`hyz` with the calibration of the literature: right at any one moment with probability 3/4.

    By Chebyshev: the standard deviation of the error is at most sqrt(k) steps, and two of them are allowed. There is
    no guarantee for all moments together, which `hyz` itself has.
    """

    name = "hyz-classical"

    def plans(self, context: RoundContext, may_block: bool) -> list[ObliviousPlan]:
        return [replace(plan, allowance=2 * sqrt(context.sites)) for plan in super().plans(context, may_block)]


# A flaw in the offsets of the lattices


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
        return LatticeEstimator(OffsetTable([step] * plan.sites, ZeroSource()), plan.reports)


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
        return _Clipped(OffsetTable([step] * plan.sites, rng), plan.reports)


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
        step = self._step
        while self._threshold <= self._hidden:
            self._threshold += step * (1.5 + self._thresholds.random())
        self.estimate = self._hidden + step


class Unredrawn(Lattice):
    """Secret thresholds as in `dithered`, but a site whose report ends a phase keeps its offset."""

    name = "unredrawn"

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return _ShortPhases(OffsetTable([step] * plan.sites, rng.spawn("offsets")), plan.reports, rng)


class _Unmoved(DitheredEstimator):
    def _replay(self, entry: Entry, before: int) -> Effect | None:
        self._lead += self._lattices.gain(entry.slot, before, entry.reported)
        while self._lead >= self._goal:
            if not self._next_phase():
                return Effect.END_ROUND
        return None


class Unmoved(Dithered):
    """`dithered` with a step for each site, but a site whose report ends a phase keeps its lattice."""

    name = "unmoved"
    kind = _Unmoved


# The published estimate discloses single reports


class _Noisy(LatticeEstimator):
    def __init__(self, lattices: OffsetTable, reports: int, rng: RandomSource) -> None:
        super().__init__(lattices, reports)
        self._noise = RandomSourceNoise(rng.spawn("noise"))

    def _estimate(self) -> None:
        super()._estimate()
        self.estimate += self._noise.laplace(Fraction(self._step, 2))


class FreshNoise(Lattice):
    """Adds new noise of about half a step to every estimate: it averages out over many estimates."""

    name = "fresh-noise"

    def plans(self, context: RoundContext, may_block: bool) -> list[ObliviousPlan]:
        """With 8 more steps of allowance for the noise, 16 times its scale."""
        return [replace(plan, allowance=plan.allowance + 8) for plan in super().plans(context, may_block)]

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return _Noisy(OffsetTable([step] * plan.sites, rng), plan.reports, rng)


class _CountsReports(DitheredEstimator):
    _reports = 0

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
    kind = _CountsReports


# The estimate is made of something else than the exact counts of all sites


class _FirstSiteTimesSites(Estimator):
    def __init__(self, alpha: float) -> None:
        self._trigger = GeometricGrowth(alpha)
        self._sites = 0

    def trigger(self, slot: int) -> Trigger:
        return self._trigger

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        self._sites = len(entries)
        self.estimate = self._sites * next((entry.round_start for entry in entries if not entry.slot), 0)

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        if entry.slot == 0:
            self.estimate = self._sites * entry.reported
        return None

    def join(self, entry: Entry) -> None:
        self._sites += 1


class Pollster(Scheme):
    """Multiplies the count of the first site by the number of sites."""

    name = "pollster"
    safe_against = "oblivious"

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        return RoundSetup(self.name, _FirstSiteTimesSites(context.alpha))


class _FromEstimate(LatticeEstimator):
    def __init__(self, lattices: OffsetTable, reports: int, last_estimate: float | None) -> None:
        super().__init__(lattices, reports)
        self._last_estimate = last_estimate

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        super().start(entries, departed)
        if self._last_estimate is not None:
            self._points += round(self._last_estimate - self.estimate)
            self._estimate()


class Drifting(Lattice):
    """Starts each round from the last estimate instead of the exact total: the errors of all rounds add up."""

    name = "drifting"

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        last = None if context.running is None else context.running.estimator.estimate
        return _FromEstimate(OffsetTable([step] * plan.sites, rng), plan.reports, last)


NEGATIVE_CONTROLS: dict[str, type[Scheme]] = {
    scheme.name: scheme
    for scheme in (
        Aligned,
        Thrifty,
        Pollster,
        Clipping,
        Unredrawn,
        Unmoved,
        FreshNoise,
        Drifting,
        HyzClassical,
        Leaking,
    )
}
