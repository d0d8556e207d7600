"""`auto`: at every round start, the cheapest scheme that is safe against the adversary; `deterministic` if in doubt."""

from collections import Counter
from math import ceil, log, sqrt
from typing import Any, NamedTuple

from countless.core.estimator import KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.random_source import RandomSource
from countless.schemes.deterministic import Deterministic, DeterministicEstimator
from countless.schemes.dithered import Dithered
from countless.schemes.lattice import Lattice
from countless.schemes.planned import PlannedScheme, usable, usable_from
from countless.schemes.sampled import Sampled

# `partial_dp` is missing on purpose: in either calibration it costs more than `deterministic` or `dithered` for every
# number of sites (`countless plan` shows it), so asking for its plan would only take time.
CANDIDATES: dict[str, tuple[type[PlannedScheme[Any]], ...]] = {
    "oblivious": (Lattice, Dithered, Sampled),
    "adaptive": (Dithered, Sampled),
    "sees-everything": (Sampled,),
}

MIN_SAVING = 0.15  # needed to leave `deterministic`, which is certain and has a smaller typical error
MIN_SITES_TO_PLAN = 32  # with fewer it stays deterministic unless traffic is oblivious (`countless plan`)
RECONSIDER_GROWTH = 1.1  # of the total while deterministic: often enough to leave within a tenth of the best moment


class PricedRound(NamedTuple):
    """A round that could be started now, and the messages it is expected to cost."""

    messages: float
    events: float  # how many it lasts for
    scheme: PlannedScheme[Any]
    plan: Any
    step: int


class Auto(Scheme):
    """Deterministic while that is cheapest - at the start, for few sites, for one busy site - else the best plan.

    A change of scheme costs no more than any new round: sites do not know which scheme they run.

    Formal guarantees: those of the schemes it picks, all of which are safe against the adversary named; the failure
    probabilities of all rounds, whatever their schemes, sum to at most delta.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=1000, alpha=0.05, seed=1)
    >>> for i in range(200_000): tracker.site(i % 1000).add()
    >>> tracker.answer.scheme, tracker.answer.lower <= 200_000 <= tracker.answer.upper
    ('dithered', True)
    """

    name = "auto"
    safe_against = "sees-everything"  # an instance: the adversary it was created for

    def __init__(self, adversary: str = "adaptive", *, may_block: bool = True) -> None:
        self.safe_against = adversary
        self._schemes = [scheme(may_block=may_block) for scheme in CANDIDATES[adversary]]
        self._may_block = may_block

    @classmethod
    def create(cls, adversary: str, *, may_block: bool = True) -> "Auto":
        return cls(adversary, may_block=may_block)

    def needs_plan(self, sites: int) -> bool:
        return sites >= MIN_SITES_TO_PLAN or self.safe_against == "oblivious"

    def prepare(self, context: RoundContext) -> None:
        for scheme in self._schemes:
            scheme.prepare(context)

    def prices(self, context: RoundContext) -> dict[str, float]:
        plans = {scheme.name: scheme.plans(context, may_block=False) for scheme in self._schemes}
        return {name: min(plan.messages_per_efold for plan in found) for name, found in plans.items() if found}

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        """Start the cheapest round, unless `deterministic` costs about as much over the same events."""
        plans = [(scheme, plan) for scheme in self._schemes for plan in scheme.plans(context, self._may_block)]
        counts = Counter(context.counts)
        rounds = [_priced(context, counts, scheme, plan) for scheme, plan in plans if plan_is_usable(context, plan)]
        best = min(rounds, key=lambda priced: priced.messages / log(1 + priced.events / context.total), default=None)
        is_deterministic = context.running is not None and context.running.scheme == Deterministic.name
        if best is not None:
            staying = deterministic_cost(counts, context.alpha, best.events)
            if not is_deterministic:
                staying += 2 * context.inexact
            if best.messages <= (1 - MIN_SAVING) * staying:
                estimator = best.scheme.estimator(best.plan, best.step, context, rng)
                return RoundSetup(best.scheme.name, estimator, best.scheme.slots(best.plan), best.plan)
        reconsider_at = ceil(context.total * RECONSIDER_GROWTH) + 1
        if plans:
            reconsider_at = max(reconsider_at, min(usable_from(plan) for _, plan in plans))
        if is_deterministic:
            return KeepRound(reconsider_at)
        return RoundSetup(Deterministic.name, DeterministicEstimator(context.alpha, reconsider_at))


def plan_is_usable(context: RoundContext, plan: Any) -> bool:
    return usable(plan, plan.step(context.total))


def _priced(context: RoundContext, counts: Counter[int], scheme: PlannedScheme[Any], plan: Any) -> PricedRound:
    step = plan.step(context.total)
    events = step * plan.steps_per_round
    exact = len(context.counts) - context.inexact
    active = min(exact, sum(sites * min(1, share * events) for _, sites, share in _shares(counts)))
    # Two messages for each site that takes part. (One is enough for a site that is known exactly, but only this time:
    # a scheme is chosen for what its rounds cost again and again.)
    messages = plan.messages_per_round - 2 * (plan.sites - context.inexact - active)
    return PricedRound(messages, events, scheme, plan, step)


def _shares(counts: Counter[int]) -> list[tuple[int, int, float]]:
    """For each count: how many sites have it, and the part of the coming events that one of them is expected to count.

    All sites without events together are given one event for each site with events (the estimate of Witten and Bell):
    idle sites are expected to stay idle beside one busy site, and to become active beside many.
    """
    idle = counts[0]
    busy = counts.total() - idle
    if not busy:
        return [(0, idle, 1 / idle)] if idle else []
    total = sum(count * sites for count, sites in counts.items()) + (busy if idle else 0)
    return [(count, sites, (count or busy / idle) / total) for count, sites in counts.items()]


def deterministic_cost(counts: Counter[int], alpha: float, events: float) -> float:
    """Messages of deterministic sites while `events` happen, if each site keeps its share of the traffic.

    A site's tolerance is taken to be its target, as the square root of its share: with shares f its report of n stands
    for growth * n further events, growth = 2 alpha/(1-alpha) / (sqrt(f) * sum of all sqrt(f)). So it reports again
    floor(growth * n) + 1 events later: at every event while that is 1, and then, on average, half an event later than
    without the rounding.
    """
    shares, cost = _shares(counts), 0.0
    roots = sum(sites * sqrt(share) for _, sites, share in shares)
    for count, sites, share in shares:
        growth = 2 * alpha / (1 - alpha) / (sqrt(share) * roots)
        end, exact_below = count + events * share, 1 / growth
        cost += sites * max(0.0, min(end, exact_below) - count)
        cost += sites * max(0.0, log((growth * end + 0.5) / (growth * max(count, exact_below) + 0.5)) / growth)
    return cost
