"""The common part of schemes with rounds: a plan, exact counting at the start, and the step.

A planned scheme runs with the plan it was given, or with one from the planner. If neither is available when a round
must start, every site reports deterministically, which is safe without a plan.
"""

from abc import abstractmethod
from collections.abc import Sequence
from math import ceil
from typing import Generic, TypeVar

from countless.core.estimator import Estimator, ExactSum, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.parameters import exact_fraction
from countless.core.random_source import RandomSource
from countless.errors import PlanError
from countless.planning.cache import PlanCache
from countless.planning.failure_budget import round_eta
from countless.planning.plan import RoundPlan, least_total
from countless.schemes.deterministic import DeterministicEstimator

P = TypeVar("P", bound=RoundPlan)

MIN_STEP = 2  # a step of 1 saves nothing: every event is reported, and the answer is exact
FALLBACK_GROWTH = 1.05  # of the total until a scheme that found no plan looks for one again


def start_exactly(scheme: str, context: RoundContext, reconsider_at: int) -> RoundSetup | KeepRound:
    """Count every event until the total reaches `reconsider_at`. A round that does so already goes on."""
    if context.running is not None and isinstance(context.running.estimator, ExactSum):
        return KeepRound(reconsider_at)
    return RoundSetup(scheme, ExactSum(reconsider_at))


class PlannedScheme(Scheme, Generic[P]):
    """A scheme whose rounds follow a plan. If several caches have a plan for a round, the last one's is the best."""

    caches: tuple[PlanCache[P], ...]
    has_slots = True  # whether the proof covers as many sites as the plan has; False: any number

    def __init__(self, plan: P | None = None, *, may_block: bool = True) -> None:
        self._given = plan
        self._may_block = may_block  # whether a new round may wait for planning, which takes up to a second

    @classmethod
    def create(cls, adversary: str, *, may_block: bool = True) -> "PlannedScheme[P]":
        return cls(may_block=may_block)

    @abstractmethod
    def estimator(self, plan: P, step: int, context: RoundContext, rng: RandomSource) -> Estimator: ...

    def slots(self, plan: P) -> int | None:
        return plan.sites if self.has_slots else None

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        """Count exactly while the step would be below 2; after that, start rounds by the plan."""
        plans = self.plans(context, self._may_block)
        for plan in reversed(plans):
            step = plan.step(context.total)
            if usable(plan, step):
                return RoundSetup(self.name, self.estimator(plan, step, context, rng), self.slots(plan), plan)
        if plans:
            return start_exactly(self.name, context, reconsider_at=min(map(usable_from, plans)))
        return self._fallback(context)

    def needs_plan(self, sites: int) -> bool:
        return True

    def prepare(self, context: RoundContext) -> None:
        self.plans(context, may_block=True)

    def plans(self, context: RoundContext, may_block: bool) -> list[P]:
        """The given plan, or those of the caches. A missing plan is computed only if the caller may block."""
        if self._given is not None:
            return [self._checked(self._given, context)]
        found = [self._plan(cache, context, may_block) for cache in self.caches]
        return [plan for plan in found if plan is not None]

    def _plan(self, cache: PlanCache[P], context: RoundContext, may_block: bool) -> P | None:
        request = (context.slots if self.has_slots else context.sites, context.alpha, self.eta(context))
        return cache.plan(*request) if may_block else cache.cached(*request)

    def quotes(self, context: RoundContext, may_block: bool) -> Sequence[RoundPlan]:
        """Plans to compute prices with, which need not be verified. Those of `plans` are."""
        return self.plans(context, may_block)

    def about_price(self, context: RoundContext) -> float:
        """Messages per e-fold that its plan will hardly be below, where that is known without a plan."""
        return 0.0

    def eta(self, context: RoundContext) -> float:
        """The failure probability that the round's plan is made for: at most the round's share of delta."""
        return round_eta(context.delta, context.round)

    def _checked(self, plan: P, context: RoundContext) -> P:
        present = len(context.counts)  # a given plan need not have a reserve for sites that join
        if exact_fraction(plan.alpha) > exact_fraction(context.alpha) or plan.sites < present:
            raise PlanError(
                f"the given {self.name} plan is for {plan.sites} sites and alpha {plan.alpha}; "
                f"this round has {present} sites and alpha {context.alpha}"
            )
        return plan

    def _fallback(self, context: RoundContext) -> RoundSetup | KeepRound:
        reconsider_at = ceil(context.total * FALLBACK_GROWTH) + 1
        if context.running is not None and context.running.estimator.reconsider_at is not None:
            return KeepRound(reconsider_at)
        return RoundSetup(self.name, DeterministicEstimator(context.alpha, reconsider_at))


def usable(plan: RoundPlan, step: int) -> bool:
    """True if the proof covers a round with this step, and the round saves messages."""
    return step >= max(MIN_STEP, plan.least_step)


def usable_from(plan: RoundPlan) -> int:
    """The smallest total at which a round of this plan is usable."""
    return least_total(plan, max(MIN_STEP, plan.least_step))
