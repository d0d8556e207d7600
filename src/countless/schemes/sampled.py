"""`sampled`: fresh coins and frequent exact rounds."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from math import log, sqrt

from countless.core.estimator import Effect, Estimator, RoundContext
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import BernoulliSampling, OncePerBlock, Trigger
from countless.planning.cache import PlanCache
from countless.planning.sampled import TIERS, SampledPlan, plan_sampled
from countless.schemes.planned import PlannedScheme


class CrossingEstimator(Estimator):
    """`blocks` and `sampled`: N0 + step * (crossings + shift), until `reports` crossings have been counted."""

    def __init__(self, trigger: OncePerBlock | BernoulliSampling, reports: int, shift: int = 0) -> None:
        self._trigger = trigger
        self._step = trigger.step
        self._left = reports
        self._shift = shift

    def trigger(self, slot: int) -> Trigger:
        return self._trigger

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        self.estimate: int = departed + sum(entry.round_start for entry in entries) + self._step * self._shift

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        """One step for each crossing. The last one is not published: the plan covers those before it, and the
        synchronisation that it starts tells the total exactly.
        """
        self._left -= crossings
        if self._left <= 0:
            return Effect.END_ROUND
        self.estimate += self._step * crossings
        return None

    def join(self, entry: Entry) -> None:
        """The count that a joining site brings is known exactly."""
        self.estimate += entry.round_start

    def on_late_start(self, entry: Entry, before: int, gain: int) -> Effect | None:
        """Add the events that an unreachable site counted before it adopted its trigger: they are known exactly."""
        self.estimate += gain
        return None


class Sampled(PlannedScheme[SampledPlan]):
    """Each event is reported with probability 1/step; publish N0 + step * (reports + shift); synchronise often.

    The coin of the next event is independent of everything that has happened, so the error is a walk whose law no
    adversary can change, not even one that sees every message and every past coin. Nothing is secret.

    Formal guarantees: with probability 1 - delta the answer is within 1 ± alpha of the total at every moment, against
    adversaries that see everything. The number of sites enters the cost of a synchronisation only, not the error.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=4, alpha=0.1, scheme="sampled", seed=1)
    >>> for i in range(100_000): tracker.site(i % 4).add()
    >>> tracker.answer.lower <= 100_000 <= tracker.answer.upper, tracker.messages.up < 10_000
    (True, True)

    References: the shape of Cohen, Shechner, Stemmer (2025, arXiv 2509.05870), reconstructed from its abstract;
    design/proofs/sampled.md.
    """

    name = "sampled"
    safe_against = "sees-everything"
    caches = tuple(PlanCache(partial(plan_sampled, least_step=least_step)) for least_step in TIERS)
    has_slots = False

    def plans(self, context: RoundContext, may_block: bool) -> list[SampledPlan]:
        """The plan for small steps, and the cheapest plan that the round's step reaches."""
        if self._given is not None or not may_block:
            return super().plans(context, may_block)
        found = [self.caches[0].plan(context.sites, context.alpha, self.eta(context))]
        tier = bisect_right(TIERS, found[0].step(context.total)) - 1
        if tier > 0:
            found.append(self.caches[tier].plan(context.sites, context.alpha, self.eta(context)))
        return found

    def prepare(self, context: RoundContext) -> None:
        super().plans(context, may_block=True)

    def about_price(self, context: RoundContext) -> float:
        """The least (m + 2k)/ln(1 + alpha m/E) over all m, with an error E of sqrt(m ln(1/eta)): near m = 2k."""
        return 2 * sqrt(2 * context.sites * log(1 / self.eta(context))) / context.alpha

    def estimator(self, plan: SampledPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return CrossingEstimator(BernoulliSampling(step), plan.reports, plan.shift)
