"""The calibration of `hyz`: sampled reports, each site estimated by its last one
(design/proofs/oblivious.md, section 5).

After Huang, Yi and Zhang (2012), one copy. For the error of a site, in steps, psi(s) = -s - ln(1-s), 0 < s < 1. Reports
are not steps of the estimate here, so the round's length is bounded by Chernoff: except with probability eta/64 the
m-th report has come by t = m + A + sqrt(A^2 + 2 m A), A = ln(64/eta).
"""

from math import inf, log, log1p, sqrt

from countless.planning.oblivious import Horizon, ObliviousPlan, SiteError, allowance, plan_oblivious
from countless.planning.plan import check_request

HYZ = SiteError(
    scheme="hyz",
    log_moment=lambda tilt: -tilt - log1p(-tilt),
    because="k geometric errors of mean 0: Chernoff, summed over both sides and all events, <= eta",
    max_tilt=0.999,
)


def plan_hyz(sites: int, alpha: float, eta: float) -> ObliviousPlan:
    """The cheapest round that fails with probability at most eta on input that ignores the answers.

    >>> plan_hyz(1000, 0.01, 1e-4).allowance > 160
    True
    """
    check_request(sites, alpha, eta)
    nats = log(64 / eta)
    unbounded = allowance(HYZ, sites, alpha, eta, Horizon(inf))

    def solve(reports: int) -> float:
        end = reports + nats + sqrt(nats * nats + 2 * reports * nats)
        return min(unbounded, allowance(HYZ, sites, alpha, eta * 63 / 64, Horizon(end)))

    return plan_oblivious(HYZ, sites, alpha, eta, solve)
