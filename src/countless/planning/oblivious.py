"""What `lattice`, `blocks` and `hyz` share: the allowance when the error is a sum of independent site errors.

SPEC 3.0; proofs in docs/theory/oblivious.md. These schemes are safe when the input does not react to the
answers: at every moment fixed in advance the error X_t, in steps, t = (N - N0)/step, is then a sum of k
independent mean-zero terms. Let psi(s) bound ln E exp(±s term). By Chernoff, for every s > 0,

    P(X_t > x), P(X_t < -x)  <=  exp(k psi(s) - s x).

Truth and estimate only grow, so it suffices to test at t = 0, g, 2g, ..., at the price of g in the allowance.
The promise is relative, so the room grows with the total: E - g + alpha g i in the i-th stretch. With
r = exp(-s alpha g), the union over G stretches and both sides is a geometric series, and at most eta when

    E  =  g + ( k psi(s) + ln( (2/eta) (1 - r^G)/(1 - r) ) ) / s.

Every s > 0 and every integer g >= 1 is valid; we take the best s, and g = 1/s rounded. SPEC's own formula is
g = 1, psi = s^2/24 and 1 - r^G over 1 - r replaced by its limit G at alpha = 0. Standard library only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, inf, log

from countless.planning.plan import Reason, step_within
from countless.planning.round_length import best_reports, messages_per_efold, reasons_for_length
from countless.planning.search import least_at, round_up

# Covers the rounding of doubles in E, whose share is below 1e-12.
_ROUNDING = 1 + 1e-10
# Where the best s is looked for. It is near sqrt(2 ln(1/eta) / (k psi'')): this is k = 1 to 1e13.
_LEAST_TILT, _MOST_TILT = 1e-7, 60.0


@dataclass(frozen=True, slots=True)
class ObliviousPlan:
    """A round of an oblivious scheme: synchronise at the `reports`-th report. Answers are not rounded."""

    scheme: str
    sites: int
    alpha: float
    eta: float
    allowance: float
    reports: int
    spacing: int
    messages_per_efold: float
    reasons: tuple[Reason, ...]
    least_step: int = 2

    @property
    def reach(self) -> int:
        """About how many steps the total grows by in a round: one for each report."""
        return self.reports

    def step(self, total: int) -> int:
        """floor(alpha N0 / E)."""
        return step_within(self.alpha, self.allowance, total)


@dataclass(frozen=True, slots=True)
class SiteError:
    """One site's error in steps: `log_moment` is psi on (0, `most_tilt`); it never exceeds `largest`."""

    scheme: str
    log_moment: Callable[[float], float]
    because: str
    most_tilt: float = _MOST_TILT
    largest: float = inf


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far a round can get, in steps, if nothing has failed: at most `fixed + per_allowance E`."""

    fixed: float
    per_allowance: float = 0.0


def horizon_by_answer(alpha: float, reports: int) -> Horizon:
    """Where the estimate moves by exactly one step per report.

    Before the m-th report and before the first failure t <= m-1 + |X_0| + |X_t| <= m-1 + 2E + alpha t; the
    failing event itself adds at most one step.
    """
    return Horizon((reports - 1) / (1 - alpha) + 1, 2 / (1 - alpha))


def allowance(error: SiteError, sites: int, alpha: float, eta: float, horizon: Horizon) -> tuple[float, int]:
    """The least E found, rounded up, and its g."""

    def at(tilt: float) -> float:
        moment = sites * error.log_moment(tilt)
        return _allowance_at(tilt, _spacing(tilt), moment, alpha, eta, horizon)

    tilt = least_at(at, _LEAST_TILT, error.most_tilt)
    found = at(tilt) * _ROUNDING
    if sites * error.largest <= found:
        return sites * error.largest, 1  # never exceeded, whatever the dice
    return round_up(found), _spacing(tilt)


def plan_oblivious(
    error: SiteError, sites: int, alpha: float, eta: float, solve: Callable[[int], tuple[float, int]]
) -> ObliviousPlan:
    """The cheapest round; `solve(m)` gives the allowance and spacing of a round of m reports."""
    reports = best_reports(sites, lambda m: messages_per_efold(sites, alpha, solve(m)[0], m))
    found, g = solve(reports)
    cost = messages_per_efold(sites, alpha, found, reports)
    reasons = (
        Reason("allowance", found, error.because),
        Reason("spacing", g, "g steps apart the error moves by at most g; the best g is near 1/s"),
        Reason("least_step", 2, "the bound holds for every step; below 2 every event is reported anyway"),
        *reasons_for_length(reports, cost),
    )
    return ObliviousPlan(error.scheme, sites, alpha, eta, found, reports, g, cost, reasons)


def _spacing(tilt: float) -> int:
    return max(1, round(1 / tilt))


def _allowance_at(tilt: float, g: int, log_moment: float, alpha: float, eta: float, horizon: Horizon) -> float:
    """E for one s and g. E is in its own horizon: start with no horizon at all and walk down.

    The map from E to the allowance with E's horizon rises. From a point that it lowers, every further point
    is lowered too, and each of them is a valid allowance: there is no need to converge.
    """
    decay = tilt * alpha * g  # r = exp(-decay)
    base = g + (log_moment + log(2 / eta) - log(-expm1(-decay))) / tilt
    if horizon.fixed == inf:
        return base
    found = base
    for _ in range(4):
        stretches = (horizon.fixed + horizon.per_allowance * found) // g + 1
        found = base + log(-expm1(-decay * stretches)) / tilt
    return found
