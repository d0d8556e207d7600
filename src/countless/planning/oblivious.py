"""The allowance when the error is a sum of independent site errors, as in `lattice`, `blocks` and `hyz`.

These schemes are safe when the input does not react to the answers. Let psi(s) bound ln E exp(±s Y), Y one site's error
in steps. If the round does not get beyond t_max steps, it fails with probability at most eta when

    E  =  ( k psi(s) + ln( (1 - e^(-s alpha (t_max+h))) / (alpha eta) * F ) ) / s,
    F  =  (1+alpha) / (1 - e^(-s (1+alpha) h))  +  (1-alpha) e^(s alpha h) / (1 - e^(-s (1-alpha) h)).

Every s > 0 and every integer h >= 1 is valid; we take the best s, and h = ln(1/alpha)/s rounded up. Proof:
design/proofs/oblivious.md, section 2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, expm1, inf, log, log1p

from countless.planning.plan import Cause, check_request
from countless.planning.round_length import EndedByReports, best_reports, messages_per_efold, reasons_for_length
from countless.planning.search import golden_section_min, round_up

# Covers the rounding of doubles in E, whose share is below 1e-12.
_ROUNDING = 1 + 1e-10
# Where the best s is searched. It is near sqrt(2 ln(1/eta) / (k psi'')): this is k = 1 to 1e13.
_MIN_TILT, _MAX_TILT = 1e-7, 60.0


@dataclass(frozen=True, slots=True)
class ObliviousPlan(EndedByReports):
    """A round of an oblivious scheme: synchronise at the `reports`-th report. Answers are not rounded."""

    scheme: str
    sites: int
    alpha: float
    eta: float
    allowance: float
    reports: int
    messages_per_efold: float
    reasons: tuple[Cause, ...]
    least_step: int = 2


@dataclass(frozen=True, slots=True)
class SiteError:
    """One site's error in steps: `log_moment` is psi on (0, `max_tilt`); it never exceeds `max_error`."""

    scheme: str
    log_moment: Callable[[float], float]
    because: str
    max_tilt: float = _MAX_TILT
    max_error: float = inf


@dataclass(frozen=True, slots=True)
class Horizon:
    """The longest way of a round, in steps, if nothing has failed: at most `fixed + per_allowance E`."""

    fixed: float
    per_allowance: float = 0.0


def horizon_by_answer(alpha: float, reports: int) -> Horizon:
    """The horizon of a scheme whose estimate moves by exactly one step per report.

    Before the m-th report and before the first failure t <= m-1 + |X_0| + |X_t| <= m-1 + 2E + alpha t; the
    failing event itself adds at most one step.
    """
    return Horizon((reports - 1) / (1 - alpha) + 1, 2 / (1 - alpha))


def allowance(error: SiteError, sites: int, alpha: float, eta: float, horizon: Horizon) -> float:
    """The least E found, rounded up."""

    def at(tilt: float) -> float:
        return _allowance_at(tilt, sites * error.log_moment(tilt), alpha, eta, horizon)

    found = at(golden_section_min(at, _MIN_TILT, error.max_tilt)) * _ROUNDING
    certain = sites * error.max_error
    return certain if certain <= found else round_up(found)


def plan_oblivious(
    error: SiteError, sites: int, alpha: float, eta: float, solve: Callable[[int], float]
) -> ObliviousPlan:
    """The cheapest round; `solve(m)` gives the allowance of a round of m reports."""
    reports = best_reports(sites, lambda m: messages_per_efold(sites, alpha, solve(m), m))
    found = solve(reports)
    cost = messages_per_efold(sites, alpha, found, reports)
    reasons = (
        Cause("allowance", found, error.because),
        Cause("least_step", 2, "the bound holds for every step; below 2 every event is reported anyway"),
        *reasons_for_length(reports, cost),
    )
    return ObliviousPlan(error.scheme, sites, alpha, eta, found, reports, cost, reasons)


def plan_step_per_report(error: SiteError, sites: int, alpha: float, eta: float) -> ObliviousPlan:
    """The cheapest round of a scheme whose estimate moves by one step per report."""
    check_request(sites, alpha, eta)
    return plan_oblivious(
        error, sites, alpha, eta, lambda m: allowance(error, sites, alpha, eta, horizon_by_answer(alpha, m))
    )


def _allowance_at(tilt: float, log_moment: float, alpha: float, eta: float, horizon: Horizon) -> float:
    """E for one s. The horizon depends on E: start without a horizon and iterate downwards.

    The map from E to the allowance with E's horizon rises. From a point that it lowers, every further point
    is lowered too, and each of them is a valid allowance: there is no need to converge.
    """
    beyond = ceil(log(1 / alpha) / tilt)
    above = (1 + alpha) / -expm1(-tilt * (1 + alpha) * beyond)
    below = (1 - alpha) * exp(tilt * alpha * beyond) / -expm1(-tilt * (1 - alpha) * beyond)
    endless = (log_moment + log(above + below) - log(alpha) - log(eta)) / tilt
    if horizon.fixed == inf:
        return endless
    found = endless
    for _ in range(4):
        last = horizon.fixed + horizon.per_allowance * found + beyond
        found = endless + log(-expm1(-tilt * alpha * last)) / tilt
    return found


# `lattice`: the error of a site, in steps, is uniform on ±1/2: psi(s) = ln( sinh(s/2) / (s/2) )
# (design/proofs/oblivious.md, part 3)


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
