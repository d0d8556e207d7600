"""`blocks`: one report at a random place of each block, for streams that do not react to the answers."""

from countless.core.estimator import Estimator, RoundContext
from countless.core.random_source import RandomSource
from countless.core.triggers import OncePerBlock
from countless.planning.cache import PlanCache
from countless.planning.oblivious import ObliviousPlan
from countless.schemes.planned import PlannedScheme
from countless.schemes.sampled import CrossingEstimator
from countless_lab.planning.blocks import plan_blocks


class Blocks(PlannedScheme[ObliviousPlan]):
    """A site cuts its stream into blocks of `step` events and reports once in each, at a uniform position.

    Formal guarantees: with probability 1 - delta within 1 ± alpha at every moment, for streams fixed in advance only.
    It is what the paper hides behind noise to make `partial_dp`. It costs more than `lattice`, which has less variance.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=16, alpha=0.05, scheme="blocks", adversary="oblivious", seed=1)
    >>> for i in range(50_000): tracker.site(i % 16).add()
    >>> tracker.answer.lower <= 50_000 <= tracker.answer.upper
    True

    References: Xiong, Zhu, Huang (NeurIPS 2023), Algorithm 1; design/proofs/oblivious.md.
    """

    name = "blocks"
    safe_against = "oblivious"
    caches = (PlanCache(plan_blocks),)

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return CrossingEstimator(OncePerBlock(step), plan.reports)
