"""The plan of the `dithered` scheme: its cost, its answers, its thresholds."""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import exp, inf, isclose, log

import pytest

from countless.errors import InvalidParameter, PlanError
from countless.planning.deterministic import plan_deterministic
from countless.planning.dithered.check import check_dithered
from countless.planning.dithered.plan import DitheredPlan, messages_per_efold, threshold_windows
from countless.planning.dithered.planner import plan_dithered
from countless.planning.dithered.schedule import LaterThresholds, Shape, solve, solve_certain

# Messages per e-fold over those of `deterministic`, at eta = 1e-4, as in docs/paper/index.md.
TABLE = [
    (64, 0.01, 1.050),
    (256, 0.01, 0.561),
    (1_000, 0.01, 0.309),
    (4_000, 0.01, 0.180),
    (10_000, 0.01, 0.1305),
    (100_000, 0.01, 0.0645),
    (1_000, 0.001, 0.308),
    (10_000, 0.001, 0.123),
    (1_000, 0.05, 0.398),
]
soak = pytest.mark.soak


def ratio(plan: DitheredPlan) -> float:
    return plan.messages_per_efold * log((1 + plan.alpha) / (1 - plan.alpha)) / plan.sites


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sites", "alpha", "expected"), [pytest.param(*row, marks=soak if row[0] > 64 else ()) for row in TABLE]
)
def test_dithered_plan_cost_matches_table(sites: int, alpha: float, expected: float) -> None:
    assert isclose(ratio(plan_dithered(sites, alpha, 1e-4)), expected, rel_tol=0.01)


def test_dithered_plan_cost_is_messages_over_growth() -> None:
    plan = plan_dithered(64, 0.01, 1e-4)
    steps_per_round = sum(phase.length for phase in plan.phases)
    assert isclose(plan.messages_per_round, steps_per_round + 1.5 * len(plan.phases) + 2 * 64)
    assert isclose(plan.messages_per_efold, plan.messages_per_round / plan.growth)
    assert isclose(
        plan.messages_per_efold, messages_per_efold(64, 0.01, plan.allowance, steps_per_round, len(plan.phases))
    )
    assert (plan.scheme, plan.sites, plan.alpha, plan.eta, plan.least_step) == ("dithered", 64, 0.01, 1e-4, 2)
    assert {reason.number for reason in plan.reasons} >= {"allowance", "phases", "dither", "slack", "risk"}


@pytest.mark.slow
@pytest.mark.parametrize("sites", [1, *(pytest.param(sites, marks=soak) for sites in (2, 7, 300)), 40])
@pytest.mark.parametrize("alpha", [pytest.param(1e-5, marks=soak), 0.02, 0.49])
@pytest.mark.parametrize("eta", [0.5, 1e-30])
def test_small_dithered_plans_pass_the_check(sites: int, alpha: float, eta: float) -> None:
    check_dithered(plan_dithered(sites, alpha, eta))


@pytest.mark.slow
@pytest.mark.parametrize(("plans", "log_sites"), [(2, 2.0), pytest.param(8, 6, marks=soak)])
def test_random_dithered_plans_pass_the_check(plans: int, log_sites: float) -> None:
    rng = random.Random(31)  # noqa: S311
    for _ in range(plans):
        sites = round(10 ** rng.uniform(0, log_sites))
        alpha, eta = 0.49 * 10 ** -rng.uniform(0, 4.6), 10 ** -rng.uniform(0.3, 30)
        check_dithered(plan_dithered(sites, alpha, eta))


def test_plan_for_few_sites_is_certain() -> None:
    plan = plan_dithered(3, 0.01, 1e-6)
    assert all(phase.slack_late == 1.5 and phase.dither == 0 and phase.risk == 0 for phase in plan.phases)
    assert plan.thresholds([0.3] * len(plan.phases))[0] == plan.phases[0].length


@pytest.mark.slow
@pytest.mark.parametrize(("sites", "alpha"), [(75, 0.1), pytest.param(300, 0.01, marks=soak)])
def test_dithered_plan_cost_grows_as_eta_falls(sites: int, alpha: float) -> None:
    costs = [plan_dithered(sites, alpha, eta).messages_per_efold for eta in (0.1, 1e-4, 1e-10, 1e-20)]
    assert costs == sorted(costs)


@pytest.mark.parametrize("sites", [1, 5, 30, pytest.param(100, marks=soak)])
def test_dithered_plan_costs_at_most_the_certain_round(sites: int) -> None:
    assert plan_dithered(sites, 0.02, 1e-9).messages_per_efold <= solve_certain(sites, 0.02).cost(sites, 0.02)


def test_solved_round_of_any_shape_passes_the_check() -> None:
    rng = random.Random(32)  # noqa: S311
    for _ in range(10):
        count = rng.randint(1, 25)
        dither = rng.uniform(3, 30)
        shape = Shape(tuple(rng.uniform(8, 20) for _ in range(count)), (dither,) * count)
        allowance, phases = solve(200, 0.01, 1e-5, shape)
        check_dithered(DitheredPlan(200, 0.01, 1e-5, allowance, phases, ()))


@pytest.mark.parametrize(
    ("sites", "alpha", "eta"),
    [(0, 0.1, 0.1), (2.5, 0.1, 0.1), (True, 0.1, 0.1), (5, 0.5, 0.1), (5, 0.1, 0.0)],
)
def test_invalid_dithered_requests_are_refused(sites: int, alpha: float, eta: float) -> None:
    with pytest.raises(InvalidParameter):
        plan_dithered(sites, alpha, eta)


# --- answers ---


def test_dithered_answer_range_is_within_alpha_of_both_ends() -> None:
    plan = plan_dithered(100, 0.01, 1e-4)
    total = 123_456_789
    step = plan.step(total)
    alpha = Fraction(1, 100)
    for index, phase in enumerate(plan.phases):
        low, high, unit = plan.answer_range(total, step, index)
        lowest, highest = Fraction(low, unit), Fraction(high, unit)
        assert lowest <= plan.answer(total, step, index) <= highest
        for answer in (lowest, highest):
            for count in (total + step * Fraction(phase.low), total + step * Fraction(phase.high)):
                assert (1 - alpha) * count <= answer <= (1 + alpha) * count


def test_dithered_answers_never_fall_and_are_integers() -> None:
    plan = plan_dithered(100, 0.01, 1e-4)
    answers = [plan.answer(10**8, plan.step(10**8), index) for index in range(len(plan.phases))]
    assert answers == sorted(answers)
    assert all(isinstance(answer, int) for answer in answers)


def test_too_large_step_is_refused() -> None:
    plan = plan_dithered(100, 0.01, 1e-4)
    with pytest.raises(PlanError):
        plan.answer_range(10**6, 2 * plan.step(10**6), 0)


def test_step_from_a_smaller_total_is_valid() -> None:
    plan = plan_dithered(100, 0.01, 1e-4)
    for index in range(len(plan.phases)):
        plan.answer_range(2 * 10**8, plan.step(10**8), index)


# --- thresholds ---


def test_thresholds_stay_in_their_windows_and_in_order() -> None:
    rng = random.Random(33)  # noqa: S311
    plan = plan_dithered(100, 0.01, 1e-4)
    for _ in range(50):
        thresholds = plan.thresholds([rng.random() for _ in plan.phases])
        for threshold, phase in zip(thresholds, plan.phases, strict=True):
            assert abs(threshold - phase.position - phase.length) <= phase.dither / 2 + 1e-9
        assert all(later >= earlier for earlier, later in pairwise(thresholds))


def test_zero_uniforms_give_the_lowest_thresholds() -> None:
    plan = plan_dithered(100, 0.01, 1e-4)
    lowest = plan.thresholds([0.0] * len(plan.phases))
    assert all(
        isclose(t, p.position + p.length - p.dither / 2, rel_tol=1e-12)
        for t, p in zip(lowest, plan.phases, strict=True)
    )


def test_thresholds_are_uniform_on_the_polytope() -> None:
    """Against rejection from the box, on a shape where half of the box is rejected.

    4,000 draws; the four means are compared to 7 standard errors: false alarm below 1e-10. Sorted independent
    thresholds are 12 standard errors off.
    """
    rng = random.Random(34)  # noqa: S311
    shape = Shape((30.0, 2.0, 2.0), (9.0, 8.0, 7.0))
    allowance, phases = solve(50, 0.1, 0.1, shape)
    plan = DitheredPlan(50, 0.1, 0.1, allowance, phases, ())
    ends = [phase.position + phase.length for phase in phases]
    count = 4000
    drawn = [plan.thresholds([rng.random() for _ in range(3)]) for _ in range(count)]
    kept: list[list[float]] = []
    while len(kept) < count:
        box = [end + (rng.random() - 0.5) * w for end, w in zip(ends, shape.dithers, strict=True)]
        if box[0] <= box[1] <= box[2]:
            kept.append(box)
    functions: tuple[Callable[[Sequence[float]], float], ...] = (
        lambda t: t[0] - ends[0],
        lambda t: t[1] - t[0],
        lambda t: (t[2] - t[1] - 2) ** 2,
        lambda t: (t[0] - ends[0]) * (t[2] - ends[2]),
    )
    for function in functions:
        ours, theirs = ([function(t) for t in sample] for sample in (drawn, kept))
        means = sum(ours) / count, sum(theirs) / count
        spread = sum((x - means[1]) ** 2 for x in theirs) / count
        assert abs(means[0] - means[1]) <= 7 * (2 * spread / count) ** 0.5


def test_threshold_density_is_the_inverse_volume() -> None:
    boxed = LaterThresholds(threshold_windows((10.0, 10.0), (4.0, 4.0)))  # in order whatever is drawn: area 16
    assert [round(boxed.log_share(j), 9) for j in range(3)] == [0.0, round(-log(4), 9), round(-log(16), 9)]
    # windows (8, 12] and (10, 14]: area 16 less the triangle of area 2
    tight = LaterThresholds(threshold_windows((10.0, 2.0), (4.0, 4.0)))
    assert isclose(tight.log_share(1), log(4 / 14))
    assert isclose(tight.log_share(2), -log(14))


def test_tangent_bounds_the_volume_of_later_thresholds() -> None:
    windows = threshold_windows((10.0, *[3.0] * 9), (12.0,) * 10)
    later = LaterThresholds(windows)
    for first in range(1, 10):
        top = windows[first - 1][1]
        weight, slope = later.tangent(first, top)
        for u in (0.0, 0.01, 0.5, 2.0, 7.0, 12.0):
            above = [(max(low, top - u), high) for low, high in windows[first:]]
            volume = LaterThresholds(above).log_volume - later.log_volume
            assert volume <= weight + slope * u + 1e-9
            assert u > 0.1 or isclose(volume, weight + slope * u, abs_tol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sites", "alpha"),
    [
        (64, 0.01),
        pytest.param(300, 0.01, marks=soak),
        pytest.param(979, 0.000314, marks=soak),
        pytest.param(1000, 0.49, marks=soak),
    ],
)
def test_threshold_density_times_resolution_is_small(sites: int, alpha: float) -> None:
    """Section 4, drawing thresholds: twice the next threshold's density times the resolution is below 0.01 nats."""
    plan = plan_dithered(sites, alpha, 1e-4)
    windows = threshold_windows(tuple(p.length for p in plan.phases), tuple(p.dither for p in plan.phases))
    later = LaterThresholds(windows)
    densities = [later.tangent(j, windows[j - 1][1])[1] for j in range(1, len(windows))]
    densities += [exp(later.log_share(j + 1) - later.log_share(j)) for j in range(1, len(windows))]
    assert 2 * max(densities) * plan.resolution < 0.004


@pytest.mark.parametrize("uniforms", [[], [0.5] * 3, [1.0] * 64, [-0.1] * 64])
def test_invalid_uniforms_are_refused(uniforms: list[float]) -> None:
    with pytest.raises(InvalidParameter):
        plan_dithered(100, 0.01, 1e-4).thresholds(uniforms)


def test_dithered_plans_are_cached() -> None:
    assert plan_dithered(64, 0.01, 1e-4) is plan_dithered(64, 0.01, 1e-4)
    assert plan_dithered(64, 0.01, 1e-4).messages_per_efold < inf


@pytest.mark.parametrize(
    ("sites", "alpha", "eta", "most"), [(800, 0.35, 2.0**-20, 0.98), pytest.param(4974, 0.2, 1 / 16, 0.45, marks=soak)]
)
def test_steep_tangents_do_not_make_plans_expensive(sites: int, alpha: float, eta: float, most: float) -> None:
    """With the tangent alone these cost 1.89 and 0.68 times what deterministic costs."""
    ratio = plan_dithered(sites, alpha, eta).messages_per_efold / plan_deterministic(sites, alpha).messages_per_efold
    assert ratio < most
