"""The cost of `deterministic`, which has no parameters to choose (design/proofs/oblivious.md, section 1).

After a report at count n a site sends nothing while its count is at most n rho, rho = (1+alpha)/(1-alpha). There is no
randomness, no round and no failure.
"""

from dataclasses import dataclass
from math import log1p

from countless.planning.plan import Cause, check_request


@dataclass(frozen=True, slots=True)
class DeterministicPlan:
    sites: int
    alpha: float
    messages_per_efold: float
    reasons: tuple[Cause, ...]
    eta: float = 0.0
    least_step: int = 1
    scheme: str = "deterministic"

    def step(self, total: int) -> int:
        """1: the trigger is `GeometricGrowth`, which has no step."""
        return 1


def growth_nats(alpha: float) -> float:
    """ln rho = ln((1+alpha)/(1-alpha)): how much a site's logarithm grows between two reports."""
    return log1p(alpha) - log1p(-alpha)


def plan_deterministic(sites: int, alpha: float) -> DeterministicPlan:
    """k / ln rho messages per e-fold of the total, once every site's count is well above 1/ln rho.

    >>> round(plan_deterministic(1000, 0.01).messages_per_efold)
    49998
    """
    check_request(sites, alpha, eta=0.5)
    cost = sites / growth_nats(alpha)
    because = "k / ln((1+alpha)/(1-alpha)): each site reports once per factor rho of its growth"
    return DeterministicPlan(sites, alpha, cost, (Cause("messages_per_efold", cost, because),))
