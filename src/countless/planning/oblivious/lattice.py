"""The calibration of `lattice`: each site reports on its own randomly shifted lattice.

The error of a site, in steps, is uniform on ±1/2: psi(s) = ln( sinh(s/2) / (s/2) ); design/proofs/oblivious.md, part 3.
"""

from math import exp, log, log1p

from countless.planning.oblivious.planner import ObliviousPlan, SiteError, plan_step_per_report


def log_moment(tilt: float) -> float:
    """ln( sinh(s/2) / (s/2) ); for small s its series, rounded up: the next term, -s^4/2880, is negative."""
    if tilt < 0.01:
        return tilt * tilt / 24
    return tilt / 2 + log1p(-exp(-tilt)) - log(tilt)


LATTICE = SiteError(
    scheme="lattice",
    log_moment=log_moment,
    because="k errors uniform on ±1/2: Chernoff, summed over both sides and all events, <= eta; at most k/2",
    max_error=0.5,
)


def plan_lattice(sites: int, alpha: float, eta: float) -> ObliviousPlan:
    """The cheapest round that fails with probability at most eta on input that ignores the answers.

    >>> plan_lattice(1000, 0.01, 1e-4).step(10**6) > 100
    True
    """
    return plan_step_per_report(LATTICE, sites, alpha, eta)
