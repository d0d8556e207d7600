"""The calibration of `sampled` against exact recursions over coins and Poisson points."""

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import ceil, log, log1p

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core.parameters import exact_fraction
from countless.errors import InvalidParameter
from countless.planning.plan import Plan
from countless.planning.sampled import (
    LIMIT,
    TIERS,
    SampledPlan,
    boundaries_for,
    failure_bound,
    plan_sampled,
    ville_sides,
)

soak = pytest.mark.soak


def exact_failure(step: int, alpha: float, allowance: float, shift: int, reports: int) -> float:
    """Exact probability that coins of bias 1/step leave the band before the m-th report: event by event.

    The walk starts where alpha N0/step is exactly the allowance, the tightest start the plan permits.
    """
    law: npt.NDArray[np.float64] = np.zeros(reports)
    law[0], failed, bias = 1.0, 0.0, 1 / step
    count = np.arange(reports) + shift
    for n in range(1, ceil(step * (reports + 2 * allowance) / (1 - alpha) ** 2)):
        law[1:] = (1 - bias) * law[1:] + bias * law[:-1]  # what moves past m-1 has ended the round safely
        law[0] *= 1 - bias
        t = n / step
        room = allowance + alpha * t
        low, high = np.searchsorted(count, [t - room, t + room + 1e-12], side="left")
        failed += float(law[:low].sum() + law[high:].sum())
        law[:low] = 0.0
        law[high:] = 0.0
        if n % 64 == 0 and law.sum() < 1e-15:
            break
    return failed


SMALL = [
    # alpha, allowance, shift, reports
    (0.01, 6.0, 1, 8),
    (0.05, 9.0, 2, 20),
    (0.2, 7.5, 0, 30),
    (0.4, 4.0, -1, 15),
    (0.001, 14.0, 3, 25),
]


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "allowance", "shift", "reports"), SMALL)
@pytest.mark.parametrize("least_step", [2, 3, 8, pytest.param(64, marks=soak)])
def test_boundaries_cover_every_step_from_the_least(
    least_step: int, alpha: float, allowance: float, shift: int, reports: int
) -> None:
    bound = failure_bound(boundaries_for(alpha, least_step), allowance, shift, reports)
    for step in (least_step, least_step + 1, 2 * least_step, 3 * least_step + 1):
        assert exact_failure(step, alpha, allowance, shift, reports) <= bound


@pytest.mark.parametrize("alpha", [1e-4, 0.01, 0.2, 0.49])
@pytest.mark.parametrize("least_step", [2, 3, 8, 64, 4096])
def test_boundaries_are_the_worst_of_all_larger_steps(least_step: int, alpha: float) -> None:
    """With mu = -ln(1 - 1/step) the couplings give u = mu (step/(1-alpha) - 1), s = (1+alpha)/(mu step)."""
    boundaries = boundaries_for(alpha, least_step)
    for step in [least_step + n for n in range(30)] + [least_step * 2**n for n in range(1, 20)]:
        mu = -log1p(-1 / step)
        assert mu * step / (1 - alpha) >= boundaries.few_scale * (1 - 1e-12)
        assert mu * (step / (1 - alpha) - 1) >= boundaries.few_slope * (1 - 1e-12)
        assert (1 + alpha) / (mu * step) >= boundaries.many_slope * (1 - 1e-12)


@pytest.mark.parametrize(("alpha", "allowance", "shift", "reports"), SMALL)
@pytest.mark.parametrize(("least_step", "step"), [(2, 2), (2, 3), (4, 5), (16, 40)])
def test_coupling_of_coins_and_poisson_points_on_every_path(
    least_step: int, step: int, alpha: float, allowance: float, shift: int, reports: int
) -> None:
    """Gaps of coins are exponential gaps rounded up; where the coins leave the band, the points cross a line.

    The claim holds on every path; the seed only chooses the paths.
    """
    allowance /= 3  # so that many paths do leave
    rng, boundaries, seen = np.random.default_rng(7), boundaries_for(alpha, least_step), 0
    mu = -log1p(-1 / step)
    j = np.arange(reports)
    for _ in range(300):
        gaps = rng.exponential(size=reports)
        times, points = np.cumsum(np.ceil(gaps / mu)), np.cumsum(gaps)
        few = times - 1 > step * (allowance + shift + j) / (1 - alpha)  # the last unreported event after j reports
        many = j[1:] + shift - times[:-1] / step > allowance + alpha * times[:-1] / step
        if few.any():
            assert (points > boundaries.few_scale * (allowance + shift) + boundaries.few_slope * j).any()
        if many.any():
            assert (points[:-1] < (j[1:] - (allowance - shift)) / boundaries.many_slope).any()
        seen += bool(few.any() or many.any())
    assert seen > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha", "allowance", "shift", "reports"),
    [pytest.param(*case, marks=soak if case[1] > 7 else ()) for case in SMALL],
)
def test_boundaries_converge_to_the_exact_probability(alpha: float, allowance: float, shift: int, reports: int) -> None:
    limit = failure_bound(boundaries_for(alpha, LIMIT), allowance, shift, reports)
    before = 2.0
    for least_step in TIERS:
        bound = failure_bound(boundaries_for(alpha, least_step), allowance, shift, reports)
        assert limit <= bound * (1 + 1e-9)
        assert bound <= before * 1.02  # blocks of terms may fall differently
        before = bound
    assert before == pytest.approx(limit, rel=1e-3)
    assert limit <= 1.06 * exact_failure(512, alpha, allowance, shift, reports) + 1e-9


@pytest.mark.parametrize("step", [1, 2, 5, 40])
@pytest.mark.parametrize(("alpha", "reports"), [(0.01, 12), (0.1, 30), (0.4, 20)])
def test_ville_covers_every_step(alpha: float, reports: int, step: int) -> None:
    eta = 0.05
    few, many = ville_sides(alpha, eta, reports)
    shift = round((few - many) / 2)
    assert exact_failure(step, alpha, max(few - shift, many + shift), shift, reports) <= eta


@pytest.mark.parametrize(
    ("sites", "alpha", "eta", "tier"),
    [(1, 0.01, 1e-2, 2), (3, 0.1, 1e-4, 2), (10, 0.01, 1e-3, 8), (10, 0.2, 1e-6, 64), (30, 0.05, 0.5, 8)],
)
def test_exact_failure_of_sampled_plans_is_within_eta(sites: int, alpha: float, eta: float, tier: int) -> None:
    plan = plan_sampled(sites, alpha, eta, tier)
    for step in (tier, tier + 1, 4 * tier):
        assert exact_failure(step, alpha, plan.allowance, plan.shift, plan.reports) <= eta


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sites", "alpha", "tier"),
    [
        (16, 0.05, 64),
        pytest.param(64, 0.01, 64, marks=soak),
        pytest.param(64, 0.05, 64, marks=soak),
    ],
)
def test_full_size_sampled_plan_is_safe_and_tight(sites: int, alpha: float, tier: int) -> None:
    eta = 1e-4
    plan = plan_sampled(sites, alpha, eta, tier)
    assert exact_failure(tier, alpha, plan.allowance, plan.shift, plan.reports) <= eta
    assert exact_failure(8 * tier, alpha, 0.93 * plan.allowance, plan.shift, plan.reports) > eta


# Messages per e-fold over k/ln((1+alpha)/(1-alpha)), eta = 1e-4.
TABLE = [
    (64, 0.01, 2.82),
    (256, 0.01, 1.39),
    (1_000, 0.01, 0.688),
    (4_000, 0.01, 0.324),
    (10_000, 0.01, 0.190),
    (100_000, 0.01, 0.0494),
    (1_000, 0.001, 0.721),
    (10_000, 0.001, 0.226),
    (1_000, 0.05, 0.538),
]


@pytest.mark.parametrize(("sites", "alpha", "ratio"), TABLE)
def test_sampled_costs_match_table(sites: int, alpha: float, ratio: float) -> None:
    deterministic = sites / log((1 + alpha) / (1 - alpha))
    assert plan_sampled(sites, alpha, 1e-4).messages_per_efold / deterministic <= 1.01 * ratio
    largest = plan_sampled(sites, alpha, 1e-4, TIERS[-1])
    assert largest.messages_per_efold / deterministic <= 1.01 * ratio


def test_each_step_tier_is_cheaper_than_the_one_before() -> None:
    costs = [plan_sampled(1000, 0.01, 1e-4, tier).messages_per_efold for tier in TIERS]
    assert all(later <= earlier * 1.0005 for earlier, later in pairwise(costs))
    assert plan_sampled(1000, 0.01, 1e-4, 2).bound == "ville"
    assert plan_sampled(1000, 0.01, 1e-4, 512).bound == "closed form"


requests = st.tuples(
    st.integers(1, 10**6),
    st.floats(-5, -0.31).map(lambda x: 10**x),
    st.floats(-30, -0.31).map(lambda x: 10**x),
    st.sampled_from([None, *TIERS]),
)


def check_sampled_plan(request: tuple[int, float, float, int | None]) -> None:
    sites, alpha, eta, least_step = request
    plan: SampledPlan = plan_sampled(sites, alpha, eta, least_step)
    few, many = ville_sides(alpha, eta, plan.reports)
    by_ville = plan.allowance + plan.shift >= few and plan.allowance - plan.shift >= many
    boundaries = boundaries_for(alpha, plan.least_step)
    assert by_ville or failure_bound(boundaries, plan.allowance, plan.shift, plan.reports) <= eta
    assert plan.allowance >= abs(plan.shift)
    assert {reason.number for reason in plan.reasons} == {
        "allowance", "shift", "least_step", "reports", "messages_per_efold",
    }  # fmt: skip


@settings(max_examples=8, deadline=None, derandomize=True)
@given(requests)
def test_sampled_plans_meet_their_bound(request: tuple[int, float, float, int | None]) -> None:
    check_sampled_plan(request)


@soak
@settings(max_examples=60, deadline=None, derandomize=True)
@given(requests)
def test_many_sampled_plans_meet_their_bound(request: tuple[int, float, float, int | None]) -> None:
    check_sampled_plan(request)


larger_requests = st.tuples(
    st.integers(20, 10**5), st.sampled_from([0.001, 0.01, 0.1]), st.sampled_from([0.1, 1e-4, 1e-12])
)


def check_sampled_cost(sites: int, alpha: float, eta: float) -> None:
    """From 20 sites on; below, the integer shift makes plans jump (and `deterministic` is cheaper anyway)."""
    plan = plan_sampled(sites, alpha, eta, 4096)
    more = plan_sampled(2 * sites, alpha, eta, 4096)
    surer = plan_sampled(sites, alpha, eta / 4, 4096)
    assert more.messages_per_efold > plan.messages_per_efold
    assert more.allowance >= plan.allowance * 0.995
    assert surer.messages_per_efold > plan.messages_per_efold


@pytest.mark.slow
@settings(max_examples=5, deadline=None, derandomize=True)
@given(larger_requests)
def test_sampled_cost_grows_with_sites_and_safety(request: tuple[int, float, float]) -> None:
    check_sampled_cost(*request)


@soak
@settings(max_examples=12, deadline=None, derandomize=True)
@given(larger_requests)
def test_sampled_cost_of_many_plans_grows_with_sites_and_safety(request: tuple[int, float, float]) -> None:
    check_sampled_cost(*request)


def test_step_is_rounded_down_and_the_limit_is_never_used() -> None:
    plan: Plan = plan_sampled(100, 0.01, 1e-4, 64)
    for total in (10**5, 10**7 + 1, 10**12 + 7):
        step = plan.step(total)
        assert step * plan_sampled(100, 0.01, 1e-4, 64).allowance <= exact_fraction(0.01) * total
    limit = plan_sampled(100, 0.01, 1e-4)
    assert limit.step(10**20) < limit.least_step == LIMIT


@pytest.mark.parametrize("least_step", [0, 1, -5, True, 2.5])
def test_invalid_least_step_is_refused(least_step: int) -> None:
    with pytest.raises(InvalidParameter):
        plan_sampled(10, 0.01, 1e-3, least_step)


@pytest.mark.parametrize(
    ("sites", "alpha", "eta"), [(0, 0.01, 0.1), (5, 0.0, 0.1), (5, 0.5, 0.1), (5, 0.1, 0.0), (5, 0.1, 1.0)]
)
def test_invalid_sampled_requests_are_refused(sites: int, alpha: float, eta: float) -> None:
    with pytest.raises(InvalidParameter):
        plan_sampled(sites, alpha, eta, 2)


History = tuple[tuple[int, bool], ...]


def stop_after_jump(history: History) -> int:
    """Feed a site until it reports, then leave it."""
    return history[-1][0] ^ history[-1][1] if history else 0


def leave_before_jump(history: History) -> int:
    """Leave a site after two events in a row without a report."""
    unreported = [not reported for _, reported in history[-2:]]
    return history[-1][0] ^ (len(unreported) == 2 and all(unreported)) if history else 1


def law_of_reports(
    adversary: Callable[[History], int], events: int, bias: Fraction
) -> dict[tuple[bool, ...], Fraction]:
    """Exact law of which events are reported, for two sites that draw geometric gaps in advance, as `Site` does."""
    law: dict[tuple[bool, ...], Fraction] = defaultdict(Fraction)

    def follow(history: History, gaps: tuple[int, int], weight: Fraction) -> None:
        if len(history) == events:
            law[tuple(reported for _, reported in history)] += weight
            return
        site = adversary(history)
        if gaps[site] == 0:  # draw: gap g with probability bias (1-bias)^(g-1), all beyond the end as one
            left = events - len(history)
            for gap in range(1, left + 2):
                chance = (1 - bias) ** (gap - 1) * (bias if gap <= left else 1)
                follow(history, (gap, gaps[1]) if site == 0 else (gaps[0], gap), weight * chance)
            return
        gap = gaps[site] - 1
        after = (gap, gaps[1]) if site == 0 else (gaps[0], gap)
        follow((*history, (site, gap == 0)), after, weight)

    follow((), (0, 0), Fraction(1))
    return law


@pytest.mark.parametrize("adversary", [stop_after_jump, leave_before_jump])
def test_no_adversary_changes_the_law_of_sampled_reports(adversary: Callable[[History], int]) -> None:
    """The theorem behind `sampled`: gaps drawn in advance per site are fresh coins in global order."""
    bias = Fraction(1, 3)
    law = law_of_reports(adversary, 7, bias)
    assert len(law) == 2**7
    for reports, chance in law.items():
        assert chance == bias ** sum(reports) * (1 - bias) ** (7 - sum(reports))
