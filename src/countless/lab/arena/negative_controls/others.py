"""More strawmen (SPEC 7): a poll, a classical calibration, and a tracker that leaks its message count."""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

from countless.core.estimator import Effect, Estimator, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import GeometricGrowth, Trigger
from countless.planning.dithered_plan import DitheredPlan
from countless.planning.oblivious import ObliviousPlan
from countless.schemes.dithered import Dithered, DitheredEstimator
from countless.schemes.hyz import Hyz


class _Poll(Estimator):
    def __init__(self, alpha: float) -> None:
        self._trigger = GeometricGrowth(alpha)
        self._sites = 0

    def trigger(self, slot: int) -> Trigger:
        return self._trigger

    def open(self, entries: Sequence[Entry], departed: int) -> None:
        self._sites = len(entries)
        self.estimate = self._sites * next((entry.round_start for entry in entries if not entry.slot), 0)

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        if entry.slot == 0:
            self.estimate = self._sites * entry.reported
        return None

    def join(self, entry: Entry) -> None:
        self._sites += 1


class Pollster(Scheme):
    """Asks the first site and multiplies by the number of sites."""

    name = "pollster"
    safe_against = "oblivious"

    def open(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        """One round, for ever."""
        return RoundSetup(self.name, _Poll(context.alpha))


class HyzClassical(Hyz):
    """`hyz` with the calibration it is quoted with in the literature: right at any one moment with probability 3/4.

    By Chebyshev: the standard deviation of the error is at most sqrt(k) steps, and two of them are
    allowed. It promises nothing about all moments together, which is what `hyz` itself pays for.
    """

    name = "hyz-classical"

    def plans(self, context: RoundContext, may_block: bool) -> list[ObliviousPlan]:
        """Two standard deviations."""
        return [replace(plan, allowance=2 * sqrt(context.sites)) for plan in super().plans(context, may_block)]


class _Telltale(DitheredEstimator):
    """Every report shows in the last digits of the answer."""

    def __init__(self, plan: DitheredPlan, step: int, rng: RandomSource) -> None:
        super().__init__(plan, step, rng)
        self._heard = 0

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        effect = super().on_report(entry, before, crossings)
        self._heard += crossings
        self._announce()
        self.estimate += self._heard / 2**20
        return effect

    def _announce(self) -> None:
        if self._phase < len(self._plan.phases):
            super()._announce()


class Leaking(Dithered):
    """`dithered`, but the number of reports shows in the last digits of the answer: harmless rounding, one
    might think.
    """

    name = "leaking"

    def estimator(self, plan: DitheredPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        """Draw the secrets, and give them away."""
        return _Telltale(plan, step, rng)
