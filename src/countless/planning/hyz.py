"""The calibration of `hyz`: sampled reports, each site estimated by its last one.

After Huang, Yi and Zhang (2012), one copy. Proofs: docs/theory/oblivious.md. Let a site have seen n events
since its base, each reported with probability p = 1/step, and let G be the number of events since the last
report; P(G >= l) = (1-p)^l, and G >= n means that there was none. The estimate is base + (gap - 1 + step)
after the first report, `base` before, so the error is step - 1 - G if G < n, and -n otherwise: mean 0,
variance at most step^2. With Y = error/step and z = (1-p) e^(-s p) < 1,

    E e^(sY) = (1 - z^n) M + z^n,    M = p e^s / (e^(s p) - 1 + p).

M is the limit n -> infinity, a law of mean 0, so M >= 1 and E e^(sY) <= M. And e^(s p) >= 1 + s p gives

    ln M <= s - ln(1+s)    for every s > -1, every n and every step.

The upper tail has s - ln(1+s), the lower one, at -s, has -s - ln(1-s), 0 < s < 1: the larger, used for both.
In Bernstein's form: P(±X > x) <= exp(-k (u - ln(1+u))) <= exp(-x^2 / (2k + 4x/3)), u = x/k.

Reports are not steps of the estimate here, so the round's length is bounded by Chernoff: except with
probability eta/64 the m-th report has come by t = m + A + sqrt(A^2 + 2 m A), A = ln(64/eta).
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
