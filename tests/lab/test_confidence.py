"""Binomial limits against scipy."""

import pytest
from scipy.stats import beta, binom

from countless.errors import InvalidParameter
from countless.lab.confidence import log_ratio_limit, lower_limit, quantile, upper_limit, upper_tail

CASES = [(0, 10), (1, 10), (5, 10), (10, 10), (3, 2000), (1000, 2000), (1999, 2000), (40, 100_000)]


@pytest.mark.parametrize(("successes", "trials"), CASES)
def test_limits(successes: int, trials: int) -> None:
    low = beta.ppf(0.001, successes, trials - successes + 1) if successes else 0.0
    high = beta.ppf(0.999, successes + 1, trials - successes) if successes < trials else 1.0
    assert lower_limit(successes, trials, 0.999) == pytest.approx(float(low), rel=1e-6, abs=1e-12)
    assert upper_limit(successes, trials, 0.999) == pytest.approx(float(high), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("successes", "trials"), CASES)
@pytest.mark.parametrize("p", [0.0, 1e-3, 0.3, 0.97, 1.0])
def test_tails(successes: int, trials: int, p: float) -> None:
    exact = float(binom.sf(successes - 1, trials, p))
    assert upper_tail(successes, trials, p) == pytest.approx(exact, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.9])
def test_quantiles(p: float) -> None:
    low, high = quantile(1000, p, 0.05)
    assert float(binom.cdf(low - 1, 1000, p)) <= 0.05
    assert float(binom.sf(high, 1000, p)) <= 0.05
    assert low < 1000 * p < high


def test_the_ratio_limit() -> None:
    assert log_ratio_limit(0, 5, 100, 0.99) == float("-inf")
    assert 0 < log_ratio_limit(900, 100, 1000, 0.99) < 2.2  # the observed log-ratio is 2.197


@pytest.mark.parametrize("arguments", [(-1, 10, 0.9), (11, 10, 0.9), (1, 0, 0.9), (1, 10, 1.0)])
def test_bad_input(arguments: tuple[int, int, float]) -> None:
    with pytest.raises(InvalidParameter):
        lower_limit(*arguments)
