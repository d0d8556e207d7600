"""The plan of a `dithered` round: its phases, its step, its answers and the law of its secret thresholds.

The round has phases. Phase j ends when the estimate reaches a secret threshold; inside a phase the public answer does
not move. The thresholds are uniform on the ordered lists that keep each of them in its window.
design/proofs/dithered.md states and proves what a plan must satisfy; `plan_dithered` makes one, `check_dithered`
verifies it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import inf, log1p

from countless.core.answer import midpoint
from countless.core.parameters import exact_fraction
from countless.errors import InvalidParameter, PlanError
from countless.planning.dithered.ordered_volume import OrderedVolume
from countless.planning.plan import Cause, step_within

MIN_STEP = 2
# Drawn thresholds are trusted to this part of a step; finer digits are drawn anew. Every slack is larger by this much.
THRESHOLD_RESOLUTION = 2.0**-12
# Messages a phase costs beyond its length: one to move a lattice, and the half step by which that lowers the estimate.
_MESSAGES_PER_PHASE = 1.5


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a round; everything in steps, counted from the total at which the round started.

    `slack_early` and `slack_late` are how far the estimate may run ahead of the total, or behind it, before
    the phase ends outside its window; `low` and `high` bound the total while this phase's answer is public;
    `risk` bounds the probability that the phase is the first to end outside its window.
    """

    length: float
    dither: float
    position: float
    slack_early: float
    slack_late: float
    low: float
    high: float
    risk: float


def messages_per_round(sites: int, steps: float, phases: int) -> float:
    """Reports, moved lattices, and a synchronisation of two messages per site."""
    return steps + _MESSAGES_PER_PHASE * phases + 2 * sites


def messages_per_efold(sites: int, alpha: float, allowance: float, steps: float, phases: int) -> float:
    """Messages of a round of `steps` steps over the e-folds by which the total grows in it."""
    return messages_per_round(sites, steps, phases) / log1p(alpha * steps / allowance)


def threshold_windows(lengths: Sequence[float], dithers: Sequence[float]) -> list[tuple[float, float]]:
    """The interval in which each threshold may lie: around the end of its phase."""
    return [(end - dither / 2, end + dither / 2) for end, dither in zip(accumulate(lengths), dithers, strict=True)]


@dataclass(frozen=True)
class DitheredPlan:
    """A round of `dithered`. All lengths are in steps, counted from the total at round start."""

    sites: int
    alpha: float
    eta: float
    allowance: float
    phases: tuple[Phase, ...]
    reasons: tuple[Cause, ...]

    scheme = "dithered"
    least_step = MIN_STEP

    def __hash__(self) -> int:
        """Without the phases: there are hundreds, and plans are hashed at each look-up."""
        return hash((self.sites, self.alpha, self.eta, self.allowance))

    @property
    def resolution(self) -> float:
        """The distance in steps by which a threshold may leave its window once its finest digits are drawn."""
        return THRESHOLD_RESOLUTION if self.phases[0].dither else 0.0

    @cached_property
    def steps_per_round(self) -> float:
        return sum(phase.length for phase in self.phases)

    @property
    def messages_per_round(self) -> float:
        return messages_per_round(self.sites, self.steps_per_round, len(self.phases))

    @property
    def growth(self) -> float:
        """E-folds by which the total grows in a round."""
        return log1p(self.alpha * self.steps_per_round / self.allowance)

    @property
    def messages_per_efold(self) -> float:
        return messages_per_efold(self.sites, self.alpha, self.allowance, self.steps_per_round, len(self.phases))

    def step(self, total: int) -> int:
        return step_within(self.alpha, self.allowance, total)

    def answer_range(self, total: int, step: int, phase: int) -> tuple[int, int, int]:
        """Numbers `low, high, unit`: every value from low/unit to high/unit is a valid answer throughout the phase.

        Exactly, in integers: (1 - alpha)(total + step * high end) and (1 + alpha)(total + step * low end).
        `total` is the exact total at round start, at least the one the step was computed from. Rounding the
        answer to an integer inside the interval needs no further allowance.
        """
        part, whole = self._alpha_ratio
        high_end, high_unit = self.phases[phase].high.as_integer_ratio()
        low_end, low_unit = self.phases[phase].low.as_integer_ratio()
        unit = max(high_unit, low_unit)  # powers of two
        lowest = (whole - part) * (total * unit + step * high_end * (unit // high_unit))
        highest = (whole + part) * (total * unit + step * low_end * (unit // low_unit))
        if lowest > highest:
            raise PlanError(f"step {step} is too large for a round that starts at {total}: use step({total})")
        return lowest, highest, whole * unit

    @cached_property
    def _alpha_ratio(self) -> tuple[int, int]:
        return exact_fraction(self.alpha).as_integer_ratio()

    def answer(self, total: int, step: int, phase: int) -> float:
        """The number to publish, from the middle of the range; an integer if the range has one."""
        return midpoint(*self.answer_range(total, step, phase))

    def thresholds(self, uniforms: Sequence[float]) -> tuple[float, ...]:
        """The round's secret thresholds, from one uniform number in [0, 1) per phase.

        Uniform on the polytope of the proof: drawn from the last to the first, each from its law given the next.
        Phase j ends when the estimate, in steps above the total at round start, has reached threshold j.
        """
        if len(uniforms) != len(self.phases):
            raise InvalidParameter("uniforms", len(uniforms), f"{len(self.phases)} numbers, one per phase")
        if any(not 0 <= uniform < 1 for uniform in uniforms):
            raise InvalidParameter("uniforms", uniforms, "numbers of at least 0 and below 1")
        if not self.phases[0].dither:
            return tuple(phase.position + phase.length for phase in self.phases)
        thresholds: list[float] = []
        ceiling = inf
        for law, uniform in zip(reversed(self._threshold_law), reversed(uniforms), strict=True):
            ceiling = min(law.quantile(uniform * law.fraction_below(ceiling)), ceiling)
            thresholds.append(ceiling)
        return tuple(reversed(thresholds))

    @cached_property
    def _threshold_law(self) -> tuple[OrderedVolume, ...]:
        """For each j, the volume of the first j+1 thresholds as a function of the last."""
        law = [OrderedVolume()]
        for window in threshold_windows([p.length for p in self.phases], [p.dither for p in self.phases]):
            law.append(law[-1].with_point(*window))
        return tuple(law[1:])
