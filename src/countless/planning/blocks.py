"""The calibration of `blocks`: one report in each block of `step` events, at a uniform place. SPEC 3.0.

Blocks start at the count where the pace was adopted. With f of the current block's `step` events seen, the
block has reported with probability f/step: a site's error in steps is Bernoulli(f/step) - f/step. Its range
is 1, so by Hoeffding's lemma psi(s) = s^2/8. Standard library only.
"""

from countless.planning.oblivious import (
    ObliviousPlan,
    SiteError,
    allowance,
    horizon_by_answer,
    plan_oblivious,
)
from countless.planning.plan import check_request

BLOCKS = SiteError(
    scheme="blocks",
    log_moment=lambda tilt: tilt * tilt / 8,
    because="k centred coins: Hoeffding, summed over both sides and all events, <= eta; at most k",
    largest=1.0,
)


def plan_blocks(sites: int, alpha: float, eta: float) -> ObliviousPlan:
    """The cheapest round that fails with probability at most eta on input that ignores the answers.

    >>> plan_blocks(1000, 0.01, 1e-4).allowance > 80
    True
    """
    check_request(sites, alpha, eta)

    def solve(reports: int) -> float:
        return allowance(BLOCKS, sites, alpha, eta, horizon_by_answer(alpha, reports))

    return plan_oblivious(BLOCKS, sites, alpha, eta, solve)
