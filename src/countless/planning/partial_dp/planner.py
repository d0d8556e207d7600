"""Plans for `partial_dp`, the paper's Algorithms 1 and 2, in two calibrations.

`paper` has the constants of the paper; what the paper leaves open is decided, and the error proved, in
design/proofs/partial-dp.md. `proven` has the constants that our bound needs, and is the cheaper of two rounds: a noisy
one (`partial_dp_proven`), and the trivial one below.

The trivial round has no noise: every report ends a phase (threshold 1) and the exact number of crossings is
published. In one block a site's crossing differs from its share of the block by less than 1, whatever the
threshold is, so the error is below `sites` steps with certainty, against every adversary. For few sites the trivial
round is the cheaper one.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, sqrt

from countless.errors import UnknownName
from countless.planning.partial_dp.paper import paper_constant
from countless.planning.partial_dp.proven import Bound, Noisy, best_noisy, reports_per_round, reports_quantile
from countless.planning.plan import Cause, check_request
from countless.planning.round_length import EndedByReports, messages_per_efold
from countless.privacy.binary_mechanism import tree_levels
from countless.privacy.thresholds import PhasedShape

CALIBRATIONS = ("paper", "proven")
_UP = 1.0 + 1e-12
_CAP_SHARE = 1e-3  # share of eta for the event that some site runs into the cap on its blocks


@dataclass(frozen=True, slots=True)
class PartialDPPlan(EndedByReports):
    """One round of `partial_dp`. The estimator needs, in order of use:

    - `threshold`, `threshold_scale`: a phase ends when its crossings reach `threshold + noise` of this
      scale; test at the start of the phase too, since the noise may be below `-threshold`;
    - `tree_length`, `tree_scale`: the count of each phase but the last enters this binary mechanism;
    - `offset`: publish `total at the start + step * (noisy prefix sum + offset)`;
    - `phases`: when so many phases have ended, the round ends; it also does when a site has reported for `cap`
      blocks.

    `epsilon` bounds the log-likelihood ratio of transcripts off the leaked blocks; it is infinite without
    noise.
    """

    calibration: str
    sites: int
    alpha: float
    eta: float
    allowance: float
    phases: int
    threshold: int
    threshold_scale: Fraction
    tree_length: int
    tree_scale: Fraction
    epsilon: float
    offset: int
    cap: int
    least_step: int
    reports: float
    reasons: tuple[Cause, ...]
    scheme: str = "partial_dp"

    @property
    def shape(self) -> PhasedShape:
        return PhasedShape(self.phases, self.threshold, self.threshold_scale, max(1, self.tree_length), self.tree_scale)

    @property
    def noisy(self) -> bool:
        """True if the round hides its thresholds behind noise; the trivial one does not need to."""
        return self.threshold_scale > 0

    @property
    def messages_per_efold(self) -> float:
        """With our synchronisation of two messages for each site."""
        return messages_per_efold(self.sites, self.alpha, self.allowance, self.reports)

    @property
    def paper_messages_per_efold(self) -> float:
        """With the paper's synchronisation of three messages for each site, to compare with its table."""
        return messages_per_efold(self.sites, self.alpha, self.allowance, self.reports, sync=3)


def plan_partial_dp(sites: int, alpha: float, eta: float, calibration: str = "proven") -> PartialDPPlan:
    """The round of this calibration for `sites` sites, relative error `alpha`, failure probability `eta`.

    Formal guarantees, for both: with probability at least 1 - eta the answer is within 1 ± alpha throughout
    the round against every adaptive adversary that sees the answers and nothing else, for every step up to
    `step(total)`.

    >>> plan = plan_partial_dp(1000, 0.01, 1e-4)
    >>> plan.phases, plan.noisy, plan.step(10**9) > plan_partial_dp(1000, 0.01, 1e-4, "paper").step(10**9)
    (64, True, True)
    """
    check_request(sites, alpha, eta)
    if calibration == "paper":
        return _paper(sites, alpha, eta)
    if calibration == "proven":
        trivial, noisy = _trivial(sites, alpha, eta), _noisy(sites, alpha, eta)
        return min(trivial, noisy, key=lambda plan: plan.messages_per_efold)
    raise UnknownName("calibration", calibration, CALIBRATIONS)


def _paper(sites: int, alpha: float, eta: float) -> PartialDPPlan:
    root, C = sqrt(sites), paper_constant(sites, eta)
    phases, threshold = ceil(root), ceil(2 * C * root)
    epsilon = C / root
    tree_scale = Fraction(tree_levels(phases) * 4 / epsilon * _UP)
    reasons = (
        Cause("C", C, "sqrt(((log2 sqrt k)^1.5 + 1) ln(8 sqrt k / beta)), beta = eta / sqrt k"),
        Cause("phases", phases, "ceil(sqrt k), one whole K everywhere"),
        Cause("threshold", threshold, "2 C sqrt k, up to a whole number of reports"),
        Cause("epsilon", epsilon, "C / sqrt k; Laplace(4/epsilon) on thresholds, epsilon/4 for the tree"),
        Cause("allowance", 8 * C * root, "8 C sqrt k steps: the paper's step is alpha N0 / (8 C sqrt k)"),
        Cause("cap", ceil(4 * C * sites), "4 C k: the reports of a round are at most 3 C k + sqrt k"),
    )
    return PartialDPPlan(
        calibration="paper",
        sites=sites,
        alpha=alpha,
        eta=eta,
        allowance=8 * C * root * _UP,
        phases=phases,
        threshold=threshold,
        threshold_scale=Fraction(4 / epsilon * _UP),
        tree_length=phases,
        tree_scale=tree_scale,
        epsilon=epsilon,
        offset=0,
        cap=ceil(4 * C * sites),
        least_step=1,
        reports=float(phases * threshold),
        reasons=reasons,
        scheme="partial_dp_paper",
    )


def _noisy(sites: int, alpha: float, eta: float) -> PartialDPPlan:
    round_, found = best_noisy(sites, alpha, eta * (1 - _CAP_SHARE))
    # Reaching the cap counts as a failure, which this share of eta covers.
    cap = ceil(reports_quantile(round_.phases, round_.threshold, round_.threshold_scale, eta * _CAP_SHARE))
    return PartialDPPlan(
        calibration="proven",
        sites=sites,
        alpha=alpha,
        eta=eta,
        allowance=found.allowance,
        phases=round_.phases,
        threshold=int(round_.threshold),
        threshold_scale=Fraction(round_.threshold_scale),
        tree_length=max(1, round_.phases - 1),
        tree_scale=Fraction(round_.tree_scale),
        epsilon=round_.epsilon,
        offset=found.offset,
        cap=cap,
        least_step=2,
        reports=reports_per_round(round_),
        reasons=_noisy_reasons(sites, round_, found, cap),
    )


def _noisy_reasons(sites: int, round_: Noisy, found: Bound, cap: int) -> tuple[Cause, ...]:
    return (
        Cause("phases", round_.phases, "a power of two, so that the tree of K - 1 inputs is full; cheapest found"),
        Cause("threshold", round_.threshold, "cheapest found with the noise scales"),
        Cause("threshold_scale", round_.threshold_scale, "a block changes the counts of two phases by one each"),
        Cause("tree_scale", round_.tree_scale, "those two counts change at most 2 log2(K) - 1 nodes of the tree"),
        Cause("epsilon", round_.epsilon, "2 / threshold_scale + (2 log2(K) - 1) / tree_scale"),
        Cause("bias", found.bias, f"{sites} tanh(epsilon/4): what the answers can reveal about the active blocks"),
        Cause("allowance", found.allowance, "the Chernoff sum over phases and both sides is at most eta"),
        Cause("offset", found.offset, "balances staleness (answers too low) against leaked blocks (too high)"),
        Cause("cap", cap, "a round has this many reports with probability below eta/1000"),
    )


def _trivial(sites: int, alpha: float, eta: float) -> PartialDPPlan:
    reports = trivial_reports(sites, alpha)
    reasons = (
        Cause("allowance", sites, "each site's crossings differ from its count by less than one step, with certainty"),
        Cause("threshold", 1, "no noise, so every report may be published at once"),
        Cause("phases", reports, "reports in a round: the cheapest, given that synchronising costs 2 k"),
    )
    return PartialDPPlan(
        calibration="proven",
        sites=sites,
        alpha=alpha,
        eta=eta,
        allowance=float(sites),
        phases=reports,
        threshold=1,
        threshold_scale=Fraction(0),
        tree_length=max(1, reports - 1),
        tree_scale=Fraction(0),
        epsilon=inf,
        offset=0,
        cap=reports + 1,
        least_step=2,
        reports=float(reports),
        reasons=reasons,
    )


def trivial_reports(sites: int, alpha: float) -> int:
    """The number of reports with the least `(m + 2k)/ln(1 + alpha m/k)`, which falls and then rises."""

    def price(reports: int) -> float:
        return messages_per_efold(sites, alpha, float(sites), reports)

    low, high = 1, ceil(sites * (100 + 10 / sqrt(alpha)))
    while high - low > 2:
        left, right = low + (high - low) // 3, high - (high - low) // 3
        low, high = (low, right) if price(left) <= price(right) else (left, high)
    return min(range(low, high + 1), key=price)
