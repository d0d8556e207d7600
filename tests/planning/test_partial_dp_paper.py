"""The paper's constants satisfy our bound (claim C29), and its main theorem holds with stated constants (claim C82)."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, cosh, exp, floor, inf, log, log1p, log2, sqrt, tanh

import pytest

from countless import Tracker
from countless.errors import InvalidParameter
from countless.planning.partial_dp.paper import paper_constant, theorem_1
from countless.planning.partial_dp.planner import PartialDPPlan, plan_partial_dp
from countless.privacy.binary_mechanism import tree_levels
from countless.schemes.partial_dp import PartialDPPaper
from support.streams import stream_named

U = sqrt(2 / 3)  # the proof's choice of s is U / tree_scale


@dataclass(frozen=True)
class Round:
    """What claim B needs to know of a round; here with any base of the logarithm in C."""

    sites: int
    alpha: float
    eta: float
    base: float = 2.0

    @property
    def constant(self) -> float:
        root = sqrt(self.sites)
        return sqrt(((log(root) / log(self.base)) ** 1.5 + 1) * log(8 * self.sites / self.eta))

    @property
    def phases(self) -> int:
        return ceil(sqrt(self.sites))

    @property
    def threshold(self) -> int:
        return ceil(2 * self.constant * sqrt(self.sites))

    @property
    def threshold_scale(self) -> float:
        return 4 * sqrt(self.sites) / self.constant

    @property
    def tree_scale(self) -> float:
        return tree_levels(self.phases) * self.threshold_scale

    @property
    def shift(self) -> float:
        nodes = max(0, 2 * tree_levels(self.phases - 1) - 1)
        return self.sites * tanh((min(2, self.phases) / self.threshold_scale + nodes / self.tree_scale) / 4)


def log_mgf(s: float, scale: float) -> float:
    """From the two geometric series, not from the closed form of the planner."""
    c = exp(-1 / scale)
    return log((1 - c) ** 2 / (1 - 2 * c * cosh(s) + c * c))


def log_sum(logs: list[float]) -> float:
    top = max(logs)
    return top + log(sum(exp(value - top) for value in logs))


def log_failures(round_: Round, s: float) -> tuple[float, float]:
    """ln of claim B's two sums at an allowance of 0: a larger one subtracts s times itself."""
    alpha, T, shift = round_.alpha, round_.threshold, round_.shift
    node, used = log_mgf(s, round_.tree_scale), log_mgf(alpha * s, round_.threshold_scale)
    stale = log_mgf((1 - alpha) * s, round_.threshold_scale) + s * (1 - alpha) * (T - 1)
    common = [j.bit_count() * node + j * (used - s * alpha * T) for j in range(round_.phases)]
    high = log_sum([value + s * (1 + alpha) * (shift + j) for j, value in enumerate(common)])
    low = log_sum(common) + s * (1 - alpha) * shift + stale + log1p(exp(-stale))
    return high, low


def needed(round_: Round) -> float:
    """The least allowance that claim B gives, over the 8 C sqrt(k) of the paper."""
    grid = [i / 200 / round_.tree_scale for i in range(1, 200)]
    sums = [log_failures(round_, s) for s in grid]
    room = log(2 / round_.eta)
    sides = [min((each[i] + room) / s for each, s in zip(sums, grid, strict=True)) for i in (0, 1)]
    return max(sides) / (8 * round_.constant * sqrt(round_.sites))


SITES = [*range(4, 130), *(4**p + d for p in range(4, 11) for d in (-1, 0, 1)), 225, 226, 961, 962, 10**5]
ALPHAS = (1e-6, 0.01, 0.499)


@pytest.mark.parametrize("eta", [0.999, 1e-4, 1e-300])
def test_paper_constants_satisfy_claim_b_from_four_sites_on(eta: float) -> None:
    """With the s of the proof; eta and alpha at both ends of their ranges."""
    for sites in SITES:
        for alpha in ALPHAS:
            round_ = Round(sites, alpha, eta)
            s = U / round_.tree_scale
            allowed = s * 8 * round_.constant * sqrt(sites)
            assert log_sum(list(log_failures(round_, s))) - allowed <= log(eta), (sites, alpha)


def test_gamma_is_at_least_one_from_four_sites_on() -> None:
    """L^1.5 + 1 >= levels, on which the proof rests; levels grow with the logarithm only."""
    for sites in range(4, 100_000):
        assert log2(sqrt(sites)) ** 1.5 + 1 >= tree_levels(ceil(sqrt(sites)))


def tail(y: float, scale: float) -> float:
    """P(noise > y) for integer Laplace noise."""
    c, least = exp(-1 / scale), floor(y) + 1
    return c**least / (1 + c) if least >= 0 else 1 - c ** (1 - least) / (1 + c)


@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize("eta", [0.999, 0.1, 1e-4, 1e-9, 1e-20, 1e-40, 1e-100, 1e-300])
def test_paper_constants_hold_below_four_sites(sites: int, eta: float) -> None:
    """There |crossings - n| < sites in any case, so that tails of the noise suffice. They are summed exactly here."""
    round_ = Round(sites, 0.0, eta)
    A, T, b1 = round_.constant * sqrt(sites), round_.threshold, round_.threshold_scale
    failure = tail(8 * A - sites - T + 1, b1)  # the first phase, too low
    if round_.phases == 2:
        b2, room = round_.tree_scale, 8 * A - sites
        failure += tail(8 * A - 1.5 * sites, b2)  # the second phase, too high
        c = exp(-1 / b1)
        cells = range(-T, ceil(60 * b1 * (1 + log(1 / eta))))
        low = sum((1 - c) / (1 + c) * c ** abs(x) * tail(room - max(T + x - 1, 0), b2) for x in cells)
        failure += low + tail(cells[-1], b1) + tail(T, b1) * tail(room, b2)
    assert failure <= eta


@pytest.mark.parametrize(("base", "least", "most"), [(2.0, 0.31, 0.79), (exp(1), 0.37, 0.92)])
def test_paper_needs_less_than_its_allowance(base: float, least: float, most: float) -> None:
    """Also with natural logarithms throughout."""
    shares = [needed(Round(4**p, alpha, 1e-4, base)) for p in range(1, 11) for alpha in (0.01, 0.1)]
    assert least < min(shares)
    assert max(shares) < most


def test_paper_plan_is_the_round_of_the_proof() -> None:
    for sites in (1, 2, 3, 4, 17, 1000, 1024):
        plan, round_ = plan_partial_dp(sites, 0.1, 1e-3, "paper"), Round(sites, 0.1, 1e-3)
        assert (plan.phases, plan.threshold, plan.offset) == (round_.phases, round_.threshold, 0)
        assert plan.allowance == pytest.approx(8 * round_.constant * sqrt(sites))
        assert float(plan.threshold_scale) == pytest.approx(round_.threshold_scale)
        assert float(plan.tree_scale) == pytest.approx(round_.tree_scale)
        assert plan.cap >= 2 * round_.constant * sites  # a round that the cap ends is long


def test_paper_plan_exists_at_the_ends_of_the_ranges() -> None:
    """8 k/eta is above the largest float there."""
    plan = plan_partial_dp(4_194_304, 1e-6, 1e-301, "paper")
    assert 40 < plan.allowance / (8 * sqrt(plan.sites)) < 200


def test_threshold_noise_exceeds_the_papers_bound_at_four_sites() -> None:
    """Correction 19: Lap(4/epsilon) needs four times the paper's bound, which is above C sqrt(k)."""
    C, beta = paper_constant(4, 1e-4), 1e-4 / 2
    quantile = 4 * 2 / C * log(4 / beta)  # of both phases together, at beta/2
    assert (round(quantile, 1), round(2 * C, 1)) == (17.9, 10.1)


def test_transfer_lemma_of_the_paper_needs_many_sites() -> None:
    """Correction 20: k (e^epsilon - 1) + 3 sqrt(k) <= 4 C sqrt(k) is false for four sites, true for 16."""

    def fits(sites: int) -> bool:
        C, root = paper_constant(sites, 1e-4), sqrt(sites)
        return sites * (exp(C / root) - 1) + 3 * root <= 4 * C * root

    assert [fits(sites) for sites in (4, 16, 64, 1024)] == [False, True, True, True]


def test_theorem_1_has_the_papers_order() -> None:
    """Divided by C sqrt(k) ln(N)/alpha, or with the term C k ln(N), it is bounded on both sides."""
    for sites in (1, 16, 1024, 65_536, 10**6):
        for alpha in (0.001, 0.01, 0.1, 0.4):
            for total in (10**9, 10**18):
                found = theorem_1(sites, alpha, total, 0.05)
                assert found.messages == sum(found.terms.values())
                assert 2 < found.messages / found.order < 400, (sites, alpha, total)


def test_theorem_1_grows_as_the_paper_says() -> None:
    for sites in (2**14, 2**16):  # below 1/alpha^2: as sqrt(k), apart from C
        a, b = theorem_1(sites, 1e-4, 10**30, 0.05), theorem_1(4 * sites, 1e-4, 10**30, 0.05)
        assert b.terms["reports"] / a.terms["reports"] / (b.C / a.C) == pytest.approx(2, rel=0.05)
    a, b = theorem_1(10**5, 0.4, 10**30, 0.05), theorem_1(10**6, 0.4, 10**30, 0.05)
    assert b.messages / a.messages > 4  # above 1/alpha^2: almost as k


@pytest.mark.soak
@pytest.mark.parametrize(("sites", "alpha"), [(4, 0.1), (16, 0.2), (64, 0.3)])
def test_theorem_1_bounds_a_run(sites: int, alpha: float) -> None:
    """Delta = 1e-6: false alarm below 1e-6."""
    total = 100_000
    found = theorem_1(sites, alpha, total, 1e-6)
    plan: PartialDPPlan = plan_partial_dp(sites, alpha, found.eta, "paper")
    tracker, seen = Tracker(sites=sites, alpha=alpha, delta=1e-6, scheme=PartialDPPaper(plan), seed=1), 0
    for site, n in stream_named("uniform", sites, total, seed=1):
        tracker.site(site).add(n)
        seen += n
        assert abs(tracker.answer.estimate - seen) <= Fraction(alpha) * seen
        if seen >= total:
            break
    assert tracker.answer.round <= found.rounds
    assert tracker.messages.total <= found.messages


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("sites", (0, 0.1, 10, 0.1)),
        ("alpha", (1, 0.5, 10, 0.1)),
        ("total", (1, 0.1, 0, 0.1)),
        ("delta", (1, 0.1, 10, 0.0)),
        ("delta", (1, 0.1, 10, inf)),
    ],
)
def test_invalid_theorem_1_is_refused(field: str, values: tuple[int, float, int, float]) -> None:
    with pytest.raises(InvalidParameter, match=field):
        theorem_1(*values)
