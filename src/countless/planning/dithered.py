"""The plan of the `dithered` scheme (SPEC 3.3): secret lattices, secret thresholds.

The round has phases. Phase j ends when the estimate reaches a secret threshold; inside a phase the public
answer does not move. The thresholds are uniform on the ordered lists that keep each of them in its window. What
has to hold for the answer to stay within 1 ± alpha with probability 1 - eta, and why, is in
docs/theory/dithered.md; no plan leaves here that `dithered_check` has not verified without using anything of
this but the dataclasses.

    dithered.py           the plan, and how to ask for one
    dithered_schedule.py  exact numbers for a given shape (lengths and dithers of the phases)
    dithered_search.py    which shape to try
    transcripts.py        volumes of ordered points in windows
    tails.py              tails of a sum of uniforms
    dithered_check.py     every inequality once more, computed in another way
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, log1p

from countless.core.answer import midpoint
from countless.errors import InvalidParameter, PlanError
from countless.planning.dithered_check import check_dithered
from countless.planning.dithered_schedule import (
    GRAIN,
    LEAST_STEP,
    Phase,
    messages_per_efold,
    messages_per_round,
    rounds_for,
    settle_sure,
    threshold_windows,
)
from countless.planning.dithered_search import find_shape
from countless.planning.ordered_volume import OrderedVolume
from countless.planning.plan import Reason, check_request, exact_fraction, step_within


@dataclass(frozen=True)
class DitheredPlan:
    """A proven round of `dithered`. All lengths are in steps, counted from the total at round start.

    >>> plan = plan_dithered(1000, 0.01, 1e-4)
    >>> plan.step(10_000_000)
    1245
    >>> lowest, highest, unit = plan.answer_range(10_000_000, 1245, 0)
    >>> lowest < plan.answer(10_000_000, 1245, 0) * unit < highest
    True
    """

    sites: int
    alpha: float
    eta: float
    allowance: float
    phases: tuple[Phase, ...]
    reasons: tuple[Reason, ...]

    def __hash__(self) -> int:
        """Of what tells plans apart: hashing hundreds of phases each time one is looked up would take long."""
        return hash((self.sites, self.alpha, self.eta, self.allowance))

    @property
    def scheme(self) -> str:
        """Name of the scheme this plan is for."""
        return "dithered"

    @property
    def least_step(self) -> int:
        """Smallest step the proof covers."""
        return LEAST_STEP

    @property
    def grain(self) -> float:
        """How far outside its window, in steps, a threshold may lie once its finest digits are drawn."""
        return GRAIN if self.phases[0].dither else 0.0

    @cached_property
    def reach(self) -> float:
        """Sum of the phase lengths: about how far, in steps, the total grows in a round."""
        return sum(phase.length for phase in self.phases)

    @property
    def messages_per_round(self) -> float:
        """Expected messages of a round: reports, moved lattices, and two per site to synchronise."""
        return messages_per_round(self.sites, self.reach, len(self.phases))

    @property
    def growth(self) -> float:
        """E-folds by which the total grows in a round."""
        return log1p(self.alpha * self.reach / self.allowance)

    @property
    def messages_per_efold(self) -> float:
        """Expected messages while the total grows by a factor e, synchronisation included."""
        return messages_per_efold(self.sites, self.alpha, self.allowance, self.reach, len(self.phases))

    def step(self, total: int) -> int:
        """Largest step allowed when the round starts at `total` (a lower bound is safe)."""
        return step_within(self.alpha, self.allowance, total)

    def answer_range(self, total: int, step: int, phase: int) -> tuple[int, int, int]:
        """Numbers `low, high, unit`: every value from low/unit to high/unit is a valid answer throughout the phase.

        Exactly, in whole numbers: (1 - alpha)(total + step * high end) and (1 + alpha)(total + step * low end).
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
        """What to publish: a number from the middle of the range, whole if the range has a whole number."""
        return midpoint(*self.answer_range(total, step, phase))

    def thresholds(self, rng: Sequence[float]) -> tuple[float, ...]:
        """The round's secret thresholds, from one uniform number in [0, 1) per phase.

        Uniform on the polytope of the proof: drawn from the last to the first, each from its law given the
        next. Phase j ends when the estimate, in steps above the total at round start, has reached threshold
        j.
        """
        if len(rng) != len(self.phases):
            raise InvalidParameter("rng", len(rng), f"{len(self.phases)} numbers, one per phase")
        if any(not 0 <= die < 1 for die in rng):
            raise InvalidParameter("rng", rng, "numbers of at least 0 and below 1")
        if not self.phases[0].dither:
            return tuple(phase.position + phase.length for phase in self.phases)
        thresholds: list[float] = []
        ceiling = inf
        for index in reversed(range(len(self.phases))):
            law = self._threshold_law[index]
            ceiling = min(law.quantile(rng[index] * law.fraction_below(ceiling)), ceiling)
            thresholds.append(ceiling)
        return tuple(reversed(thresholds))

    @cached_property
    def _threshold_law(self) -> tuple[OrderedVolume, ...]:
        """For each j, the volume of the first j+1 thresholds as a function of the last."""
        law = [OrderedVolume()]
        lengths = tuple(phase.length for phase in self.phases)
        for low, high in threshold_windows(lengths, tuple(phase.dither for phase in self.phases)):
            law.append(law[-1].then(low, high))
        return tuple(law[1:])


@lru_cache(maxsize=256)
def plan_dithered(sites: int, alpha: float, eta: float) -> DitheredPlan:
    """The cheapest round found for this many sites; a pure function, so plans are remembered."""
    check_request(sites, alpha, eta)
    rounds = [settle_sure(sites, alpha)]
    shape = find_shape(sites, alpha, eta)
    if shape is not None:
        rounds += rounds_for(sites, alpha, eta, shape)
    allowance, phases = min(
        rounds,
        key=lambda r: messages_per_efold(sites, alpha, r[0], sum(phase.length for phase in r[1]), len(r[1])),
    )
    plan = DitheredPlan(sites, alpha, eta, allowance, phases, _reasons(allowance, phases, sites, alpha, eta))
    check_dithered(plan)
    return plan


def _reasons(allowance: float, phases: tuple[Phase, ...], sites: int, alpha: float, eta: float) -> tuple[Reason, ...]:
    ratio = (1 + alpha) / (1 - alpha)
    tightest = max(range(len(phases)), key=lambda j: phases[j].high - ratio * phases[j].low)
    first, last = phases[0], phases[-1]
    sure = last.slack_late >= sites / 2
    return (
        Reason(
            "allowance",
            allowance,
            f"phase {tightest}: n0 + high <= (1+alpha)/(1-alpha) (n0 + low) with n0 = allowance/alpha",
        ),
        Reason("phases", len(phases), "fewest messages per e-fold, synchronisation of two per site included"),
        Reason(
            "length",
            first.length,
            "phase 0: length - dither/2 >= slack, so no phase ends before the first event",
        ),
        Reason("dither", first.dither, "thresholds are uniform; wider ones tell less and cost allowance"),
        Reason(
            "slack",
            last.slack_late,
            f"last phase: {'half a step per site, certain' if sure else 'transcripts x tail <= risk'}",
        ),
        Reason("risk", sum(phase.risk for phase in phases), f"sum over the phases <= eta = {eta:g}"),
    )
