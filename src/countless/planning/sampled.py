"""The calibration of `sampled`: how large a step fresh coins allow, and when to synchronise.

Proofs: design/proofs/sampled.md. With time in steps since the round start, t = n/step, and R reports so far,
the answer is N0 + step (R + b), and the guarantee is |R + b - t| <= E + alpha t until the m-th report, where
E = alpha N0/step. Both boundaries are straight lines:

    too few reports    t > (E + b + R) / (1 - alpha)     `p_too_few` in poisson_boundary
    too many           R > E - b + (1 + alpha) t         `p_too_many` in poisson_boundary

The error is a walk of fresh coins: its law is the same under every adversary, even one that sees every
message, and the number of sites enters the price of a synchronisation only.
"""

from dataclasses import dataclass
from math import log, log1p

from countless.errors import InvalidParameter, PlanError
from countless.planning.plan import Cause, check_request
from countless.planning.poisson_boundary import p_too_few, p_too_many, too_few_start_ville, too_many_slack_ville
from countless.planning.round_length import EndedByReports, best_reports, messages_per_efold, reasons_for_length
from countless.planning.search import approx_root, round_up, safe_root

# The least steps to make plans for. A larger one allows a cheaper plan; beyond the last there is no gain.
TIERS = (2, 8, 64, 512, 4096, 2**16, 2**24)
# `least_step` of a plan for the Poisson limit, step -> infinity: no real step reaches it, so none is used.
LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class SampledPlan(EndedByReports):
    """A round of `sampled`: publish N0 + step (reports + shift), synchronise at the `reports`-th report.

    `bound` names the proof that gave the cheaper round: "closed form" or "ville".
    """

    sites: int
    alpha: float
    eta: float
    least_step: int
    allowance: float
    reports: int
    shift: int
    messages_per_efold: float
    bound: str
    reasons: tuple[Cause, ...]
    scheme: str = "sampled"


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Both boundaries, for a Poisson process of rate 1 that stands for coins of every bias <= 1/least_step.

    p_too_few(w = few_scale (E + b), u = few_slope, m) and p_too_many(c = E - b, s = many_slope, m).
    """

    few_scale: float
    few_slope: float
    many_slope: float


def boundaries_for(alpha: float, least_step: int) -> Boundaries:
    """Boundaries that hold for every step >= least_step, by coupling the coins to a Poisson process.

    With p = 1/least_step and a = -ln(1-p)/p: u = alpha/(1-alpha) + a (1-p) and s = (1+alpha)/a. In the limit
    p -> 0 these are u = 1/(1-alpha) and s = 1+alpha; a larger step moves both boundaries away from the walk.
    """
    if least_step >= LIMIT:
        return Boundaries(1 / (1 - alpha), 1 / (1 - alpha), 1 + alpha)
    p = 1 / least_step
    stretch = -log1p(-p) / p
    return Boundaries(1 / (1 - alpha), alpha / (1 - alpha) + stretch * (1 - p), (1 + alpha) / stretch)


def failure_bound(boundaries: Boundaries, allowance: float, shift: float, reports: int) -> float:
    """Upper bound on the probability that the answer leaves 1 ± alpha before the m-th report."""
    few = p_too_few(boundaries.few_scale * (allowance + shift), boundaries.few_slope, reports)
    return few + p_too_many(allowance - shift, boundaries.many_slope, reports)


def plan_sampled(sites: int, alpha: float, eta: float, least_step: int | None = None) -> SampledPlan:
    """The cheapest proven round for every step >= least_step.

    `least_step=None` plans for the Poisson limit, step -> infinity: for tables; no real step may use it.

    >>> plan = plan_sampled(1000, 0.01, 1e-4, least_step=4096)
    >>> plan.step(10**9) >= 4096
    True
    """
    check_request(sites, alpha, eta)
    least = LIMIT if least_step is None else least_step
    if isinstance(least, bool) or not isinstance(least, int) or least < 2:
        raise InvalidParameter("least_step", least_step, "an integer of at least 2, or None for the limit")
    by_ville = _plan_by_ville(sites, alpha, eta, least)
    by_boundaries = _plan_by_boundaries(sites, alpha, eta, least)
    return min(by_boundaries, by_ville, key=lambda plan: plan.messages_per_efold)


def ville_sides(alpha: float, eta: float, reports: int) -> tuple[float, float]:
    """E + b and E - b by Ville's inequality, eta/2 for each side, for any step."""
    nats = log(2 / eta)
    few = (1 - alpha) * too_few_start_ville(1 / (1 - alpha), reports, nats)
    return few, too_many_slack_ville(1 + alpha, reports, nats)


def _plan_by_ville(sites: int, alpha: float, eta: float, least_step: int) -> SampledPlan:
    def cost(reports: int) -> float:
        return messages_per_efold(sites, alpha, sum(ville_sides(alpha, eta, reports)) / 2, reports)

    reports = best_reports(sites, cost)
    few, many = ville_sides(alpha, eta, reports)
    shift = round((few - many) / 2)
    allowance = round_up((1 + 1e-9) * max(few - shift, many + shift))
    because = "Ville's inequality: each boundary is met with probability at most eta/2, at any step"
    return _plan(sites, alpha, eta, least_step, (allowance, reports, shift), "ville", because)


def _boundary_sides(boundaries: Boundaries, eta: float, reports: int) -> tuple[float, float]:
    """E + b and E - b with eta/2 for each side, to about a part in 1000: enough to choose m and b."""
    nats = log(2 / eta)
    start = too_few_start_ville(boundaries.few_slope, reports, nats)
    few = approx_root(lambda w: p_too_few(w, boundaries.few_slope, reports), eta / 2, start)
    slack = too_many_slack_ville(boundaries.many_slope, reports, nats)
    many = approx_root(lambda c: p_too_many(c, boundaries.many_slope, reports), eta / 2, slack)
    return few / boundaries.few_scale, many


def _plan_by_boundaries(sites: int, alpha: float, eta: float, least_step: int) -> SampledPlan:
    boundaries = boundaries_for(alpha, least_step)

    def cost(reports: int) -> float:
        return messages_per_efold(sites, alpha, sum(_boundary_sides(boundaries, eta, reports)) / 2, reports)

    reports = best_reports(sites, cost)
    few, many = _boundary_sides(boundaries, eta, reports)
    shift = round((few - many) / 2)
    least = abs(shift)  # the answer must be right at t = 0 too, when R = 0
    ample = 1.02 * max(few - shift, many + shift)  # more than eta/2 for each side needs
    extra = safe_root(
        lambda x: failure_bound(boundaries, least + x, shift, reports), eta, ample - least, 2.0**-13 * ample
    )
    allowance = round_up(least + extra)
    value = failure_bound(boundaries, allowance, shift, reports)
    if value > eta:
        raise PlanError(f"sampled: failure bound {value} above eta = {eta}, E = {allowance}, m = {reports}")
    because = f"P(too few) + P(too many) = {value:.4g} <= eta for every step >= {least_step}"
    return _plan(sites, alpha, eta, least_step, (allowance, reports, shift), "closed form", because)


def _plan(
    sites: int, alpha: float, eta: float, least_step: int, numbers: tuple[float, int, int], bound: str, because: str
) -> SampledPlan:
    allowance, reports, shift = numbers
    cost = messages_per_efold(sites, alpha, allowance, reports)
    reasons = (
        Cause("allowance", allowance, because),
        Cause("shift", shift, "the integer nearest to where too few and too many are equally likely"),
        Cause("least_step", least_step, "1/step enters the boundaries as p = 1/least_step; larger steps only help"),
        *reasons_for_length(reports, cost),
    )
    return SampledPlan(sites, alpha, eta, least_step, allowance, reports, shift, cost, bound, reasons)
