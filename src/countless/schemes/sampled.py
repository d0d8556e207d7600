"""`sampled`: fresh coins and frequent exact rounds."""

from functools import partial

from countless.core.estimator import Estimator, RoundContext
from countless.core.random_source import RandomSource
from countless.core.triggers import BernoulliSampling
from countless.planning.cache import PlanCache
from countless.planning.sampled import TIERS, SampledPlan, plan_sampled
from countless.schemes.crossing_estimator import CrossingEstimator
from countless.schemes.planned import PlannedScheme


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
    docs/theory/sampled.md.
    """

    name = "sampled"
    safe_against = "sees-everything"
    caches = tuple(PlanCache(partial(plan_sampled, least_step=least_step)) for least_step in TIERS)

    def slots(self, plan: SampledPlan) -> int | None:
        """Any number of sites may share the coins."""
        return None

    def estimator(self, plan: SampledPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return CrossingEstimator(BernoulliSampling(step), plan.reports, plan.shift)
