"""`partial_dp`: the paper's Algorithms 1 and 2, blocks behind noisy phases and a binary mechanism."""

from collections.abc import Sequence
from functools import partial

from countless.core.estimator import Effect, Estimator, RoundContext
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import OncePerBlock, Trigger
from countless.planning.cache import PlanCache
from countless.planning.partial_dp.planner import PartialDPPlan, plan_partial_dp
from countless.privacy.noise import Noise, noise_from
from countless.privacy.thresholds import PhasedCounter
from countless.schemes.planned import PlannedScheme


class NoisyPhaseEstimator(Estimator):
    """Crossings go into the phased counter that `countless lab audit` checks; only its noisy value is published."""

    def __init__(self, plan: PartialDPPlan, step: int, noise: Noise) -> None:
        self._plan = plan
        self._trigger = OncePerBlock(step)
        self._counter = PhasedCounter(plan.shape, noise)
        self._total = 0  # at the start of the round, plus the counts of sites that joined

    @property
    def phase(self) -> int | None:
        return self._counter.ended

    @property
    def noisy(self) -> bool:
        return self._plan.noisy

    def trigger(self, slot: int) -> Trigger:
        """The same for all; each site draws its thresholds lazily."""
        return self._trigger

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        self._total = departed + sum(entry.round_start for entry in entries)
        self._announce()

    def join(self, entry: Entry) -> None:
        """The count that a joining site brings is known exactly."""
        self._total += entry.round_start
        self._announce()

    def on_late_start(self, entry: Entry, before: int, gain: int) -> Effect | None:
        """Add the events that an unreachable site counted before it adopted its trigger: they are known exactly."""
        self._total += gain
        self._announce()
        return None

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        """One crossing after the other: a batch must equal its events."""
        for _ in range(crossings):
            if self._counter.finished:
                break
            self._counter.crossing()
        self._announce()
        return Effect.END_ROUND if self._counter.finished or entry.crossings >= self._plan.cap else None

    def _announce(self) -> None:
        self.estimate: int = self._total + self._trigger.step * (self._counter.value + self._plan.offset)


class PartialDP(PlannedScheme[PartialDPPlan]):
    """The paper: report once in each block; publish, at the end of noisy phases, differentially private sums.

    The constants are ours, which prove the guarantee at the least cost. For thousands of sites `deterministic` is
    cheaper still: see docs/paper/index.md.

    Formal guarantees: with probability 1 - delta within 1 ± alpha at every moment, against every adaptive adversary
    that sees the answers and nothing else.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=16, alpha=0.05, scheme="partial_dp", seed=1)
    >>> for i in range(50_000): tracker.site(i % 16).add()
    >>> tracker.answer.lower <= 50_000 <= tracker.answer.upper
    True

    References: Xiong, Zhu, Huang (NeurIPS 2023); design/proofs/partial-dp.md.
    """

    name = "partial_dp"
    safe_against = "adaptive"
    caches = (PlanCache(plan_partial_dp),)

    def estimator(self, plan: PartialDPPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return NoisyPhaseEstimator(plan, step, noise_from(rng.spawn("noise")))


class PartialDPPaper(PartialDP):
    """`partial_dp` with the paper's own constants, for comparison: several times the cost.

    Formal guarantees: those of `partial_dp`, by claim C of design/proofs/partial-dp.md.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=4, alpha=0.2, scheme="partial_dp_paper", seed=1)
    >>> for i in range(20_000): tracker.site(i % 4).add()
    >>> tracker.answer.lower <= 20_000 <= tracker.answer.upper
    True

    References: Xiong, Zhu, Huang (NeurIPS 2023); design/proofs/partial-dp.md.
    """

    name = "partial_dp_paper"
    caches = (PlanCache(partial(plan_partial_dp, calibration="paper")),)
