"""Binomial confidence limits: their defining property, against tails summed with exact fractions."""

from fractions import Fraction
from math import comb, inf, log

import pytest

from countless.errors import InvalidParameter
from countless_lab.confidence import log_ratio_limit, lower_limit, quantile, upper_limit

CASES = [(1, 10), (5, 10), (10, 10), (3, 200), (100, 200), (199, 200)]


def upper_tail(successes: int, trials: int, p: float) -> float:
    """P(at least `successes` of `trials`)."""
    q = Fraction(p)
    return float(sum(comb(trials, k) * q**k * (1 - q) ** (trials - k) for k in range(successes, trials + 1)))


@pytest.mark.parametrize(("successes", "trials"), CASES)
def test_tail_at_a_limit_is_the_risk(successes: int, trials: int) -> None:
    assert upper_tail(successes, trials, lower_limit(successes, trials, 0.999)) == pytest.approx(0.001, rel=1e-6)
    failures = trials - successes
    if failures:
        assert upper_tail(failures, trials, 1 - upper_limit(successes, trials, 0.999)) == pytest.approx(0.001, rel=1e-6)


def test_limits_without_successes_and_without_failures() -> None:
    assert lower_limit(0, 10, 0.9) == 0.0
    assert upper_limit(10, 10, 0.9) == 1.0
    assert upper_limit(0, 200, 0.95) == pytest.approx(1 - 0.05 ** (1 / 200))


@pytest.mark.parametrize("p", [1 / 64, 0.5, 0.875])  # fractions that stay short
def test_quantiles_are_exceeded_with_at_most_the_risk(p: float) -> None:
    low, high = quantile(1000, p, 0.05)
    below, above = upper_tail(1001 - low, 1000, 1 - p), upper_tail(high + 1, 1000, p)
    assert max(below, above) <= 0.05
    assert min(upper_tail(1000 - low, 1000, 1 - p), upper_tail(high, 1000, p)) > 0.05
    assert low < 1000 * p < high


def test_log_ratio_limit() -> None:
    assert log_ratio_limit(0, 5, 100, 0.99) == float("-inf")
    assert 0 < log_ratio_limit(900, 100, 1000, 0.99) < 2.2  # the observed log-ratio is 2.197


@pytest.mark.parametrize("arguments", [(-1, 10, 0.9), (11, 10, 0.9), (1, 0, 0.9), (1, 10, 1.0)])
def test_invalid_input_is_refused(arguments: tuple[int, int, float]) -> None:
    with pytest.raises(InvalidParameter):
        lower_limit(*arguments)


def test_log_ratio_limit_subtracts_delta() -> None:
    without = log_ratio_limit(90, 10, 100, 0.9)
    low, high = lower_limit(90, 100, 0.95), upper_limit(10, 100, 0.95)
    assert log_ratio_limit(90, 10, 100, 0.9, 0.2) == pytest.approx(log((low - 0.2) / high))
    assert log_ratio_limit(90, 10, 100, 0.9, 0.95) == -inf < without
