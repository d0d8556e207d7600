"""Crossing probabilities of straight lines: closed forms against recursions that know nothing of them."""

from math import exp, log
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, pdtr, pdtrc, xlogy

from countless.planning.poisson_boundary import (
    at_least_bound,
    at_most_bound,
    p_too_few,
    p_too_many,
    point_bound,
    too_few_start_ville,
    too_many_slack_ville,
)


def pmf(count: Any, mean: Any) -> Any:
    """Of the Poisson law. `scipy.stats` has it too, and takes a second to import."""
    return np.exp(xlogy(count, mean) - mean - gammaln(count + 1))


def left_the_strip(late_line: tuple[float, float] | None, early_line: tuple[float, float] | None, m: int) -> float:
    """Exact probability of `late` or `early` (or both): the law of N, from one critical time to the next.

    At t = w + u j the count j is too late; just before t = (j - c)/s every count >= j is too early.
    """
    critical: list[tuple[float, int, bool]] = []
    if late_line is not None:
        critical += [(late_line[0] + late_line[1] * j, j, True) for j in range(m)]
    end = 0.0
    if early_line is not None:
        c, s = early_line
        end = (m - 1 - c) / s
        critical += [((j - c) / s, j, False) for j in range(1, m) if j > c]
    law: npt.NDArray[np.float64] = np.zeros(m)
    law[0], now, failed = 1.0, 0.0, 0.0
    for time, j, is_late in sorted(critical):
        moved = np.convolve(law, pmf(np.arange(m), time - now))[:m]
        if early_line is not None and time <= end:
            failed += float(law.sum() - moved.sum())  # m points before the early line has passed m-1
        law, now = moved, time
        lost = slice(j, j + 1) if is_late else slice(j, m)
        failed += float(law[lost].sum())
        law[lost] = 0.0
    return failed


CASES = [
    # w, u, c, s, m
    (5.0, 1.01, 5.0, 1.01, 30),
    (12.0, 1.02, 10.0, 1.01, 60),
    (20.0, 1.1, 15.0, 1.09, 200),
    (3.0, 2.0, 2.0, 1.5, 10),
    (40.0, 1.001, 38.0, 1.001, 150),
    (50.5, 1.0101, 40.25, 1.01, 300),
    (4.3, 0.98, 3.7, 0.97, 12),
    (8.0, 0.9, 9.0, 0.9, 40),
    (0.4, 1.2, 0.25, 1.2, 3),
    (2.0, 1.01, 0.5, 1.01, 2),
]


@pytest.mark.parametrize(("w", "u", "c", "s", "m"), CASES)
def test_closed_forms_are_the_exact_probabilities_rounded_up(w: float, u: float, c: float, s: float, m: int) -> None:
    exact_late = left_the_strip((w, u), None, m)
    exact_early = left_the_strip(None, (c, s), m)
    assert exact_late * (1 - 1e-9) <= p_too_few(w, u, m) <= 1.02 * exact_late
    assert exact_early * (1 - 1e-9) <= p_too_many(c, s, m) <= 1.05 * exact_early
    assert left_the_strip((w, u), (c, s), m) <= p_too_few(w, u, m) + p_too_many(c, s, m) + 1e-12


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(0.5, 30), st.floats(0.9, 1.9), st.floats(0, 20), st.floats(0.9, 1.49), st.integers(1, 60))
def test_boundary_probabilities_are_safe_and_tight(w: float, u: float, c: float, s: float, m: int) -> None:
    exact_late, exact_early = left_the_strip((w, u), None, m), left_the_strip(None, (c, s), m)
    assert exact_late - 1e-12 <= p_too_few(w, u, m) <= 1.05 * exact_late + 1e-12
    assert exact_early - 1e-12 <= p_too_many(c, s, m) <= 1.12 * exact_early + 1e-12


def direct_late(w: float, u: float, m: int) -> float:
    j = np.arange(m)
    return float(np.sum(w / (w + u * j) * pmf(j, w + u * j)))


def direct_early(c: float, s: float, m: int) -> float:
    end = m - 1
    j = np.arange(int(c) + 1, end)
    i = end - j
    below = pdtr(i, i / s) - pdtr(i - 1, i / s) / s
    return float(pdtrc(end - 1, (end - c) / s) + np.sum(pmf(j, (j - c) / s) * below))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "alpha", "m"),
    [
        (600.0, 1e-3, 21_000),
        (1200.0, 1e-5, 100_000),
        pytest.param(500.0, 1e-2, 300_000, marks=pytest.mark.soak),
        pytest.param(3000.0, 1e-4, 400_000, marks=pytest.mark.soak),
    ],
)
def test_block_sums_lie_just_above_the_direct_sum(level: float, alpha: float, m: int) -> None:
    exact_late = direct_late(level / (1 - alpha), 1 / (1 - alpha), m)
    exact_early = direct_early(level, 1 + alpha, m)
    assert exact_late * (1 - 1e-6) <= p_too_few(level / (1 - alpha), 1 / (1 - alpha), m) <= 1.03 * exact_late
    assert exact_early * (1 - 1e-6) <= p_too_many(level, 1 + alpha, m) <= 1.03 * exact_early


@pytest.mark.parametrize("nats", [0.5, 3.0, 10.0])
@pytest.mark.parametrize(("alpha", "m"), [(0.01, 40), (0.2, 80), (0.001, 150), (0.4, 5)])
def test_ville_bounds_are_safe_and_close(alpha: float, m: int, nats: float) -> None:
    w = too_few_start_ville(1 / (1 - alpha), m, nats)
    c = too_many_slack_ville(1 + alpha, m, nats)
    exact = left_the_strip((w, 1 / (1 - alpha)), None, m)
    assert exact <= exp(-nats)
    assert left_the_strip(None, (c, 1 + alpha), m) <= exp(-nats)
    assert p_too_few(0.75 * w, 1 / (1 - alpha), m) > exp(-nats) or nats < 1


def test_ville_bounds_hold_for_coins_of_every_bias() -> None:
    """The bound is for coins too: exact recursion over flips, t = flips * bias."""
    alpha, m, nats = 0.05, 30, 4.0
    w = too_few_start_ville(1 / (1 - alpha), m, nats)
    c = too_many_slack_ville(1 + alpha, m, nats)
    for bias in (1.0, 0.5, 0.2, 0.03):
        law: npt.NDArray[np.float64] = np.zeros(m)
        law[0], too_late, too_early = 1.0, 0.0, 0.0
        reports = np.arange(m)
        for flip in range(1, int(4 * (w + m) / bias)):
            law = (1 - bias) * law + bias * np.concatenate(([0.0], law[:-1]))
            t = flip * bias
            is_late = t > w + reports / (1 - alpha)
            is_early = reports > c + (1 + alpha) * t
            too_late += float(law[is_late].sum())
            too_early += float(law[is_early].sum())
            law[is_late | is_early] = 0.0
        assert too_late <= exp(-nats)
        assert too_early <= exp(-nats)


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 400), st.floats(0.01, 400))
def test_poisson_tail_bounds_are_above_the_tails(count: int, mean: float) -> None:
    assert point_bound(count, mean) >= pmf(count, mean) * (1 - 1e-9)
    assert at_most_bound(count, mean) >= pdtr(count, mean) * (1 - 1e-9)
    exact = pdtrc(count - 1, mean) if count else 1.0
    assert at_least_bound(count, mean) >= exact * (1 - 1e-9)
    assert at_least_bound(count, mean) <= 1.01 * exact + 1e-300


def test_boundary_probabilities_at_the_edges() -> None:
    assert p_too_few(0.0, 1.1, 5) == 1.0
    assert p_too_few(3.0, 1.1, 1) == pytest.approx(exp(-3.0))
    assert p_too_many(-0.1, 1.1, 5) == 1.0
    assert p_too_many(4.0, 1.1, 5) == 0.0
    assert p_too_many(0.0, 1.1, 1) == 0.0
    assert p_too_many(0.0, 1.1, 2) == pytest.approx(1 - exp(-1 / 1.1), rel=0.01)


def test_boundary_probabilities_in_the_far_tail() -> None:
    assert -1000 < log(p_too_few(900.0, 1.01, 2000)) < -100
    assert p_too_many(900.0, 1.01, 2000) < 1e-100
