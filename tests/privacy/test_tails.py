"""Moment generating functions and tails against direct summation."""

from math import exp, inf, log, log1p

import pytest

from countless.privacy.tails import laplace_sum_quantile, log_mgf, log_phase_sum, softplus


@pytest.mark.parametrize("scale", [0.2, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_mgf_of_integer_laplace_noise(scale: float, share: float) -> None:
    s = share / scale
    places = range(-20_000, 20_001)
    direct = sum(exp(s * x - abs(x) / scale) for x in places) / sum(exp(-abs(x) / scale) for x in places)
    assert log_mgf(s, scale) == pytest.approx(log(direct), rel=1e-9, abs=1e-12)
    assert log_mgf(-s, scale) == log_mgf(s, scale)
    assert log_mgf(s, scale) <= -log1p(-((s * scale) ** 2))  # never above the continuous law


@pytest.mark.parametrize(("s", "scale", "value"), [(1.0, 1.0, inf), (2.0, 1.0, inf), (5.0, 0.0, 0.0), (0.0, 3.0, 0.0)])
def test_mgf_is_infinite_at_its_edges(s: float, scale: float, value: float) -> None:
    assert log_mgf(s, scale) == value


def test_mgf_of_tiny_scales_does_not_overflow() -> None:
    assert 0 < log_mgf(900.0, 0.001) < 1e-20


def test_sum_over_phases_factorises() -> None:
    direct = sum(exp(0.03 * j + 0.2 * j.bit_count()) for j in range(32))
    assert log_phase_sum(5, 0.03, 0.2) == pytest.approx(log(direct), rel=1e-12)


def test_softplus_does_not_overflow() -> None:
    assert softplus(0.0) == pytest.approx(log(2))
    assert softplus(800.0) == 800.0
    assert softplus(-800.0) == 0.0


@pytest.mark.parametrize("terms", [1, 3, 10])
def test_laplace_sum_quantile_is_an_upper_quantile(terms: int) -> None:
    """Against the exact law of a sum of integer Laplace variables, by convolution."""
    scale, failure = 2.0, 1e-3
    x = laplace_sum_quantile(scale, terms, failure)
    width = 150
    one = [exp(-abs(i) / scale) for i in range(-width, width + 1)]
    one = [w / sum(one) for w in one]
    law = [1.0]
    for _ in range(terms):
        law = _convolve(law, one)
    centre = len(law) // 2
    tail = sum(p for i, p in enumerate(law) if abs(i - centre) > x)
    assert tail <= failure
    assert tail > failure / 40  # Chernoff is not far off


def _convolve(a: list[float], b: list[float]) -> list[float]:
    import numpy as np

    return [float(v) for v in np.convolve(a, b)]


def test_laplace_sum_of_no_terms_is_zero() -> None:
    assert laplace_sum_quantile(1.0, 0, 0.01) == 0.0
    assert laplace_sum_quantile(0.0, 5, 0.01) == 0.0
