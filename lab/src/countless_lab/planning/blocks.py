"""The calibration of `blocks`: one report in each block of `step` events, at a uniform place.

The error of a site, in steps, is a centred coin: psi(s) = s^2/8 (design/proofs/oblivious.md, section 4).
"""

from countless.planning.oblivious import ObliviousPlan, SiteError, plan_step_per_report

BLOCKS = SiteError(
    scheme="blocks",
    log_moment=lambda tilt: tilt * tilt / 8,
    because="k centred coins: Hoeffding, summed over both sides and all events, <= eta; at most k",
    max_error=1.0,
)


def plan_blocks(sites: int, alpha: float, eta: float) -> ObliviousPlan:
    """The cheapest round that fails with probability at most eta on input that ignores the answers.

    >>> plan_blocks(1000, 0.01, 1e-4).allowance > 80
    True
    """
    return plan_step_per_report(BLOCKS, sites, alpha, eta)
