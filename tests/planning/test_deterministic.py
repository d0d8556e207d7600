"""The price of `deterministic`, and that its estimate is within alpha until the next report."""

from fractions import Fraction
from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core.parameters import exact_fraction
from countless.planning.deterministic import plan_deterministic
from countless.planning.plan import Plan

alphas = st.floats(1e-4, 0.49)


def reports_up_to(count: int, alpha: float) -> int:
    """The reports of one site, by following its trigger."""
    exact = exact_fraction(alpha)
    rho = (1 + exact) / (1 - exact)
    at, reports = 1, 0
    while at <= count:
        reports += 1
        at = int(at * rho) + 1
    return reports


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 10**9), alphas)
def test_deterministic_estimate_is_within_alpha_until_the_next_report(last: int, alpha: float) -> None:
    exact = exact_fraction(alpha)
    rho = (1 + exact) / (1 - exact)
    estimate = (1 + exact) * last
    for count in (last, int(last * rho)):
        assert abs(estimate - count) <= exact * count
    assert abs(estimate - (int(last * rho) + 1)) > exact * (int(last * rho) + 1)


@pytest.mark.parametrize("alpha", [0.3, 0.05, 0.01])
def test_deterministic_cost_is_what_the_trigger_sends(alpha: float) -> None:
    base = round(1000 / alpha)
    sent = reports_up_to(round(base * exp(5)), alpha) - reports_up_to(base, alpha)
    assert sent / 5 == pytest.approx(plan_deterministic(1, alpha).messages_per_efold, rel=0.01)


def test_deterministic_plan_fields() -> None:
    plan: Plan = plan_deterministic(1000, 0.01)
    assert plan.messages_per_efold == pytest.approx(1000 / log(1.01 / 0.99))
    assert (plan.eta, plan.least_step, plan.step(10**9)) == (0.0, 1, 1)
    assert [reason.number for reason in plan.reasons] == ["messages_per_efold"]


def test_sum_of_deterministic_estimates_is_within_alpha() -> None:
    alpha = Fraction(1, 10)
    lasts, counts = (10, 7, 100), (12, 8, 122)  # no count has passed its next report
    estimate = (1 + alpha) * sum(lasts)
    assert abs(estimate - sum(counts)) <= alpha * sum(counts)
