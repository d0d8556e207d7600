"""Theorem values against hand calculations, and each correction to the paper."""

from math import e, exp, log, sqrt

import pytest

from countless.errors import InvalidParameter
from countless.privacy.guarantee import LeakMap, PartialDPGuarantee
from countless.privacy.theorems import (
    IN_RANGE,
    Accuracy,
    Sample,
    posterior_linear,
    posterior_low_sensitivity,
    posterior_pure,
    resampling,
    transfer_linear,
    transfer_low_sensitivity,
    transfer_pure,
)

LEAKS = LeakMap("leaks", frozenset)
ONE = PartialDPGuarantee(1.0, 1e-8, 30, LEAKS)
PURE = PartialDPGuarantee(1.0, 0.0, 30, LEAKS)
ACCURATE = Accuracy(0.02, 1e-6)


def test_resampling_by_hand() -> None:
    bound = resampling(Sample(1000), ACCURATE, 0.01)
    assert bound.error == pytest.approx(0.03)
    assert bound.failure == pytest.approx(1e-4)
    sparse = resampling(Sample(1000, 100), ACCURATE, 0.01)
    assert sparse.error == pytest.approx(0.02 + 0.1 * 0.01)
    assert IN_RANGE in sparse.assumptions  # the paper uses it silently


def test_posterior_linear_by_hand() -> None:
    bound = posterior_linear(ONE, Sample(1000), 0.005)
    assert bound.error == pytest.approx((e - 1) + 0.03 + 0.01)
    assert bound.failure == pytest.approx(1e-8 / 0.005)


def test_correction_kappa_over_m_is_not_doubled() -> None:
    assert posterior_linear(ONE, Sample(1000), 0.005).terms["leak"] == 30 / 1000
    assert transfer_linear(ONE, Sample(1000, 100), ACCURATE, 0.01, 0.005).terms["leak"] == 30 / 1000


def test_correction_no_more_leaks_than_active_points() -> None:
    assert posterior_linear(ONE, Sample(1000, 10), 0.005).terms["leak"] == 10 / 1000
    assert posterior_low_sensitivity(ONE, Sample(1000, 10), 0.1, 0.005).terms["leak"] == 10 * 0.1


def test_transfer_linear_by_hand() -> None:
    bound = transfer_linear(ONE, Sample(1000, 100), ACCURATE, 0.01, 0.005)
    assert bound.error == pytest.approx(0.02 + 0.1 * (e - 1 + 0.01) + 0.03 + 2 * 0.005)
    assert bound.failure == pytest.approx(1e-8 / 0.005 + 1e-6 / 0.01)
    whole = transfer_linear(ONE, Sample(1000), ACCURATE, 0.01, 0.005)
    assert whole.error == pytest.approx(0.02 + (e - 1) + 0.03 + 0.01 + 2 * 0.005)
    assert len(set(whole.assumptions)) == len(whole.assumptions) == 3


def test_low_sensitivity_by_hand() -> None:
    lemma = posterior_low_sensitivity(ONE, Sample(1000, 100), 0.002, 0.01)
    assert lemma.error == pytest.approx((e - 1 + 30 / 100 + 4 * 0.01) * 100 * 0.002)
    assert lemma.failure == pytest.approx(10 * 1e-8 / 0.01)
    theorem = transfer_low_sensitivity(ONE, Sample(1000, 100), 0.002, ACCURATE, 0.05, 0.01)
    assert theorem.error == pytest.approx(lemma.error + 0.02 + 0.05)
    assert theorem.failure == pytest.approx(lemma.failure + 1e-6 / 0.05)


def test_correction_low_sensitivity_needs_the_range_of_the_query() -> None:
    narrow = transfer_low_sensitivity(PURE, Sample(1000), 0.5, ACCURATE, 0.05, query_range=1.0)
    wide = transfer_low_sensitivity(PURE, Sample(1000), 0.5, ACCURATE, 0.05, query_range=20.0)
    assert wide.failure == pytest.approx(20 * narrow.failure)
    assert wide.error == narrow.error


def test_linear_queries_are_low_sensitivity_ones() -> None:
    """The two lemmas agree up to their slack when the sensitivity is 1/m."""
    linear = posterior_linear(PURE, Sample(1000, 100))
    low = posterior_low_sensitivity(PURE, Sample(1000, 100), 1 / 1000)
    assert linear.error == pytest.approx(low.error)


def test_pure_theorems_by_hand() -> None:
    bound = posterior_pure(PURE, Sample(1000), 0.01)
    assert bound.error == pytest.approx((e - 1) + 0.03 + sqrt(2 * log(200) / 1000))
    assert bound.failure == 0.01
    sparse = transfer_pure(PURE, Sample(1000, 100), ACCURATE, 0.01)
    assert sparse.error == pytest.approx(0.02 + 0.1 * (e - 1) + 0.03 + sqrt(2 * 100 * log(200)) / 1000)
    assert sparse.failure == pytest.approx(1e-6 + 0.01)


def test_pure_theorems_refuse_delta() -> None:
    with pytest.raises(InvalidParameter, match="delta"):
        posterior_pure(ONE, Sample(1000), 0.01)


def test_zero_slack_is_allowed_only_where_the_probability_is_zero() -> None:
    assert posterior_linear(PURE, Sample(1000)).failure == 0.0
    with pytest.raises(InvalidParameter, match="posterior_slack"):
        posterior_linear(ONE, Sample(1000))
    with pytest.raises(InvalidParameter, match="sample_slack"):
        resampling(Sample(1000), ACCURATE, -0.1)


def test_failure_is_at_most_one() -> None:
    assert resampling(Sample(1000), Accuracy(0.02, 0.5), 0.01).failure == 1.0


def test_error_is_the_sum_of_terms() -> None:
    bound = transfer_linear(ONE, Sample(1000, 100), ACCURATE, 0.01, 0.005)
    assert sum(bound.terms.values()) == pytest.approx(bound.error)


@pytest.mark.parametrize(
    ("m", "m_hat", "field"), [(0, None, "m"), (10, 11, "m_hat"), (10, 0, "m_hat"), (True, None, "m")]
)
def test_invalid_samples_are_refused(m: int, m_hat: int | None, field: str) -> None:
    with pytest.raises(InvalidParameter, match=field):
        Sample(m, m_hat)


@pytest.mark.parametrize("values", [(-1.0, 0.1), (float("nan"), 0.1), (0.1, 1.5)])
def test_invalid_accuracies_are_refused(values: tuple[float, float]) -> None:
    with pytest.raises(InvalidParameter):
        Accuracy(*values)


def test_invalid_sensitivity_and_range_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="sensitivity"):
        posterior_low_sensitivity(PURE, Sample(10), -1.0)
    with pytest.raises(InvalidParameter, match="query_range"):
        transfer_low_sensitivity(PURE, Sample(10), 1.0, ACCURATE, 0.1, query_range=0.0)


def test_bounds_for_small_epsilon() -> None:
    """e^epsilon - 1 without cancellation: the naive difference is off by one part in 10,000 here."""
    error = posterior_linear(PartialDPGuarantee(1e-12), Sample(10)).error
    assert abs(error / 1e-12 - 1) < 1e-11
    assert abs((exp(1e-12) - 1) / 1e-12 - 1) > 1e-5
