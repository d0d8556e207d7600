"""Volumes of ordered points, tails of sums of uniforms: what the `dithered` theorem needs."""

import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from math import comb, cosh, exp, factorial, isclose, log, pi, prod, sin, sinh, sqrt

import pytest

from countless.errors import PlanError
from countless.planning.dithered.check import Tail, log_volumes
from countless.planning.dithered.ordered_volume import OrderedVolume
from countless.planning.dithered.tails import cumulant, exponent, quick_slack, slack, variance

Windows = list[tuple[float, float]]


def planner_volume(windows: Windows) -> OrderedVolume:
    volume = OrderedVolume()
    for low, high in windows:
        volume = volume.with_point(low, high)
    return volume


def checker_volume(windows: Windows) -> float:
    return exp(log_volumes(windows, [])[0][-1])


def random_windows(rng: random.Random, count: int) -> Windows:
    lows = sorted(rng.uniform(0, count) for _ in range(count))
    highs = sorted(rng.uniform(0, count) + 2 for _ in range(count))
    return [(low, high) for low, high in zip(lows, highs, strict=True) if low < high]


def grid_bounds(windows: Windows, cells: int) -> tuple[float, float]:
    """Lower and upper sums of the same integral on a plain grid: slow and crude bounds."""
    left, right = windows[0][0], windows[-1][1]
    width = (right - left) / cells
    lower, upper = [1.0] * (cells + 1), [1.0] * (cells + 1)  # Phi at the grid points
    for low, high in windows:
        new_lower, new_upper = [0.0], [0.0]
        for cell in range(cells):
            x = left + cell * width
            inside = max(0.0, min(high, x + width) - max(low, x))
            new_lower.append(new_lower[-1] + inside * lower[cell])
            new_upper.append(new_upper[-1] + inside * upper[cell + 1])
        lower, upper = new_lower, new_upper
    return lower[-1], upper[-1]


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_equal_windows_are_a_simplex(count: int) -> None:
    windows = [(1.0, 3.5)] * count
    simplex = 2.5**count / factorial(count)
    assert isclose(exp(planner_volume(windows).log_total), simplex, rel_tol=1e-12)
    assert isclose(checker_volume(windows), simplex, rel_tol=1e-12)


def test_disjoint_windows_are_a_product() -> None:
    windows = [(0.0, 1.0), (1.5, 4.0), (4.0, 4.25), (9.0, 12.0)]
    product = prod(high - low for low, high in windows)
    assert isclose(exp(planner_volume(windows).log_total), product, rel_tol=1e-12)
    assert isclose(checker_volume(windows), product, rel_tol=1e-12)


def test_two_overlapping_windows_by_hand() -> None:
    # x in (0, 2], y in (1, 3], x < y: the square of area 4 less the triangle 1 < y < x < 2
    assert isclose(exp(planner_volume([(0.0, 2.0), (1.0, 3.0)]).log_total), 3.5, rel_tol=1e-12)


def test_planner_and_check_volumes_agree_and_lie_between_grid_sums() -> None:
    rng = random.Random(20)  # noqa: S311
    for _ in range(40):
        windows = random_windows(rng, rng.randint(2, 12))
        exact = exp(planner_volume(windows).log_total)
        assert isclose(exact, checker_volume(windows), rel_tol=1e-10)
        lower, upper = grid_bounds(windows, 400)
        assert lower <= exact * (1 + 1e-12)
        assert exact <= upper * (1 + 1e-12)
        assert upper <= 1.5 * lower + 1e-9


def test_partial_volumes_agree_with_counting_cells() -> None:
    rng = random.Random(21)  # noqa: S311
    for _ in range(30):
        windows = random_windows(rng, 8)
        queries = sorted(rng.uniform(windows[0][0], windows[-1][1]) for _ in windows)
        expected = log_volumes(windows, queries)[1]
        volume = OrderedVolume()
        for (low, high), query, log_volume in zip(windows, queries, expected, strict=True):
            if query >= volume.edges[0]:  # below its last window the planner keeps nothing
                assert isclose(exp(volume.log_below(query)), exp(log_volume), rel_tol=1e-9, abs_tol=1e-300)
            volume = volume.with_point(low, high)


def test_volume_of_nearly_touching_windows_is_accurate() -> None:
    windows = [(float(i), i + 30.0) for i in range(60)]
    nearly = [(low + 1e-12 * (i % 3), high + 1e-12 * (i % 2)) for i, (low, high) in enumerate(windows)]
    assert isclose(planner_volume(nearly).log_total, planner_volume(windows).log_total, rel_tol=1e-9)
    assert isclose(planner_volume(nearly).log_total, log_volumes(nearly, [])[0][-1], rel_tol=1e-11)


def test_volume_of_thousands_of_points_does_not_overflow() -> None:
    windows = [(50.0 * i, 50.0 * i + 400) for i in range(3000)]
    planned = planner_volume(windows).log_total
    assert isclose(planned, log_volumes(windows, [])[0][-1], rel_tol=1e-12)
    assert log(50) < planned / 3000 < log(50) + 1  # between disjoint windows and free points


def test_quantile_inverts_the_fraction_below() -> None:
    rng = random.Random(22)  # noqa: S311
    volume = planner_volume([(10.0 * i, 10.0 * i + 35) for i in range(20)])
    for _ in range(300):
        fraction = rng.random()
        assert isclose(volume.fraction_below(volume.quantile(fraction)), fraction, rel_tol=1e-11, abs_tol=1e-13)
    assert volume.quantile(0.0) == volume.edges[0]


@pytest.mark.parametrize("window", [(-1.0, 4.0), (1.0, 1.5), (5.0, 5.0)])
def test_unordered_and_empty_windows_are_refused(window: tuple[float, float]) -> None:
    with pytest.raises(PlanError):
        planner_volume([(0.0, 3.0), window])


# --- tails ---


def brute_rate(u: float) -> float:
    """I(u) = sup_s [s u - ln(sinh(s/2)/(s/2))] by looking at many s."""
    tilts = (0.001 * 1.002**i for i in range(6000))
    return max(s * u - (log(sinh(s / 2) / (s / 2)) if s < 100 else s / 2 - log(s)) for s in tilts)


@pytest.mark.parametrize("u", [0.1, 0.25, 0.4, 0.49])
def test_exponent_is_chernoff_times_a_normal_density(u: float) -> None:
    sites = 100
    low, high = 1e-3, 1e4  # the tilt with mean u, by halving
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if cumulant(middle)[1] < u else (low, middle)
    density = 1 / sqrt(2 * pi * variance(low) * (sites - 1.5))
    assert isclose(exponent(sites, low), sites * brute_rate(u) + log(low * low / density), rel_tol=1e-5)
    assert isclose(exponent(sites, low, 0.4 * low), exponent(sites, low) + log(0.6), rel_tol=1e-9)


@pytest.mark.parametrize("tilt", [0.001, 0.099, 0.101, 0.5, 3.0, 50.0, 200.0])
def test_tilted_variance_is_the_slope_of_the_mean(tilt: float) -> None:
    by = 1e-4 * tilt
    slope = (cumulant(tilt + by)[1] - cumulant(tilt - by)[1]) / (2 * by)
    assert isclose(variance(tilt), slope, rel_tol=1e-6)


@pytest.mark.parametrize("tilt", [0.01, 0.3, 1.0, 4.0, 30.0])
def test_characteristic_function_of_tilted_uniform_is_bounded(tilt: float) -> None:
    """|E exp(itx)|^2 under the tilt is at most 1/(1 + K'' t^2): what bounds the density of the sum."""
    for tenth in range(1, 400):
        t = tenth / 10
        swing = (1 + (sin(t / 2) / sinh(tilt / 2)) ** 2) * tilt**2 / (tilt**2 + t**2)
        assert swing <= (1 + 1e-12) / (1 + variance(tilt) * t**2)


@pytest.mark.parametrize("tilt", [0.001, 0.0199, 0.0201, 0.5, 3.0, 50.0])
def test_cumulant_matches_its_closed_form(tilt: float) -> None:
    value, mean = cumulant(tilt)
    assert isclose(value, log(sinh(tilt / 2) / (tilt / 2)), rel_tol=1e-9)
    assert isclose(mean, 0.5 * cosh(tilt / 2) / sinh(tilt / 2) - 1 / tilt, rel_tol=1e-9, abs_tol=1e-12)


def test_rate_function_is_at_least_gaussian() -> None:
    assert all(brute_rate(u) >= 6 * u * u for u in (0.05, 0.2, 0.45))


def exact_tail(sites: int, step: int, x: Fraction) -> Fraction:
    """Pr[sum of `sites` uniforms on {-(step-1)/2 .. (step-1)/2}/step >= x], by convolution."""
    counts = [1]
    for _ in range(sites):
        counts = [sum(counts[max(0, i - step + 1) : i + 1]) for i in range(len(counts) + step - 1)]
    offset = Fraction(sites * (step - 1), 2)
    return Fraction(sum(c for i, c in enumerate(counts) if (i - offset) / step >= x), step**sites)


def exact_excess(steps: Sequence[int], unit: int, x: float, slope: float) -> float:
    """The integral over u > 0 of exp(slope u) Pr[sum >= x + u], by convolution; sum and x in `unit` events."""
    counts = [1]
    for step in steps:
        counts = [sum(counts[max(0, i - step + 1) : i + 1]) for i in range(len(counts) + step - 1)]
    over = ((i - (len(counts) - 1) / 2) / unit - x for i in range(len(counts)))
    weights = (0.0 if v <= 0 else (exp(slope * v) - 1) / slope if slope else v for v in over)
    return sum(Fraction(c, prod(steps)) * Fraction(w) for c, w in zip(counts, weights, strict=True)).__float__()


@pytest.mark.parametrize(("sites", "step"), [(1, 2), (2, 7), (3, 40), (5, 3), (12, 2), (12, 10)])
@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_tail_bound_is_above_the_exact_integral(sites: int, step: int, slope: float) -> None:
    for tenth in range(1, 10):
        x = sites * tenth / 20
        assert exact_excess([step] * sites, step, x, slope) <= exp(min(Tail([(1.0, sites)], x).log(slope), 700.0))
    assert exact_excess([step] * sites, step, sites / 2, slope) == 0  # half a step per site is never reached


@pytest.mark.parametrize("steps", [[1, 9], [1, 1, 1, 12], [2, 3, 5, 7], [1] * 9 + [4] * 3, [2] * 6 + [20, 1]])
@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_tail_bound_of_unequal_steps_is_above_the_exact_integral(steps: list[int], slope: float) -> None:
    unit = 4
    widths = sorted(((step / unit, slots) for step, slots in Counter(steps).items()), reverse=True)
    reach = sum(steps) / unit / 2
    for tenth in range(1, 10):
        x = reach * tenth / 10
        assert exact_excess(steps, unit, x, slope) <= exp(min(Tail(widths, x).log(slope), 700.0))
    assert exact_excess(steps, unit, reach, slope) == 0


def test_tail_bound_is_close_to_the_exact_integral() -> None:
    sites, step = 60, 12
    for x in (7.0, 10.0, 14.0):  # three to six standard deviations: Chernoff alone is 7 to 20 times too large
        assert exp(Tail([(1.0, sites)], x).log(0.0)) <= 1.7 * exact_excess([step] * sites, step, x, 0.0)


def test_slack_is_at_most_half_a_step_per_site() -> None:
    assert slack(10, 0.1, lambda _: 1e6)[0] == 5.0
    assert slack(1, 0.0, lambda _: 200.0)[0] == 0.5


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_slack_solves_nats_that_depend_on_it(slope: float) -> None:
    reached, tilt = slack(1000, slope, lambda x: 60.0 - 0.2 * x)
    assert exponent(1000, tilt, slope) >= 60.0 - 0.2 * reached - 1e-6
    assert exponent(1000, 0.999 * tilt, slope) < 60.0 - 0.2 * 0.999 * reached


def constant(nats: float, _: float) -> float:
    return nats


def test_quick_slack_is_close_to_slack() -> None:
    for sites, nats in ((50, 8.0), (1000, 40.0), (10**6, 200.0)):
        exact = slack(sites, 0.0, partial(constant, nats))[0]
        assert isclose(quick_slack(sites, nats, 1.0)[0], exact, rel_tol=1e-2)


def test_slack_has_the_gaussian_limit() -> None:
    sites, nats = 10**8, 30.0
    reached, tilt = slack(sites, 0.0, lambda _: nats)
    gain = 2 * log(tilt) + log(2 * pi * sites / 12) / 2
    assert isclose(reached, sqrt(sites / 6 * (nats - gain)), rel_tol=1e-3)


def test_exact_tail_of_coins_is_binomial() -> None:
    # two-point uniforms are coins: the exact tail above must be the binomial's
    heads = sum(comb(12, i) for i in range(9, 13))
    assert exact_tail(12, 2, Fraction(3, 2)) == Fraction(heads, 2**12)
