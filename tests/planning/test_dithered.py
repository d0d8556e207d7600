"""The plan of the `dithered` scheme (SPEC 3.3 and 3.4): what it costs, and that it is what it says."""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import exp, inf, isclose, log

import pytest

from countless.errors import InvalidParameter, PlanError
from countless.planning.dithered import plan_dithered
from countless.planning.dithered_check import check_dithered
from countless.planning.dithered_plan import DitheredPlan, messages_per_efold, threshold_windows
from countless.planning.dithered_schedule import LaterThresholds, Shape, solve, solve_certain

# SPEC 3.4: messages per e-fold over those of `deterministic`, at eta = 1e-4; then what this planner reaches.
TABLE = [
    (64, 0.01, 1.28, 1.050),
    (256, 0.01, 0.725, 0.561),
    (1_000, 0.01, 0.418, 0.309),
    (4_000, 0.01, 0.245, 0.180),
    (10_000, 0.01, 0.176, 0.1305),
    (100_000, 0.01, 0.083, 0.0645),
    (1_000, 0.001, 0.427, 0.308),
    (10_000, 0.001, 0.177, 0.123),
    (1_000, 0.05, 0.489, 0.398),
]


def ratio(plan: DitheredPlan) -> float:
    return plan.messages_per_efold * log((1 + plan.alpha) / (1 - plan.alpha)) / plan.sites


@pytest.mark.slow
@pytest.mark.parametrize(("sites", "alpha", "spec", "reached"), TABLE)
def test_costs_beat_the_table(sites: int, alpha: float, spec: float, reached: float) -> None:
    cost = ratio(plan_dithered(sites, alpha, 1e-4))
    assert cost <= spec
    assert isclose(cost, reached, rel_tol=0.01)  # a change here is news: tell the table in the docs


def test_the_cost_is_the_formula() -> None:
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
@pytest.mark.parametrize("sites", [1, 2, 7, 40, 300])
@pytest.mark.parametrize("alpha", [1e-5, 0.02, 0.49])
@pytest.mark.parametrize("eta", [0.5, 1e-30])
def test_small_plans_hold_everywhere(sites: int, alpha: float, eta: float) -> None:
    check_dithered(plan_dithered(sites, alpha, eta))


@pytest.mark.slow
def test_random_plans_hold() -> None:
    rng = random.Random(31)  # noqa: S311
    for _ in range(8):
        sites = round(10 ** rng.uniform(0, 6))
        alpha, eta = 0.49 * 10 ** -rng.uniform(0, 4.6), 10 ** -rng.uniform(0.3, 30)
        check_dithered(plan_dithered(sites, alpha, eta))


def test_few_sites_need_no_luck() -> None:
    plan = plan_dithered(3, 0.01, 1e-6)
    assert all(phase.slack_late == 1.5 and phase.dither == 0 and phase.risk == 0 for phase in plan.phases)
    assert plan.thresholds([0.3] * len(plan.phases))[0] == plan.phases[0].length


@pytest.mark.slow
def test_more_safety_costs_more() -> None:
    costs = [plan_dithered(300, 0.01, eta).messages_per_efold for eta in (0.1, 1e-4, 1e-10, 1e-20)]
    assert costs == sorted(costs)


@pytest.mark.slow
def test_never_dearer_than_certainty() -> None:
    for sites in (1, 5, 30, 100):
        allowance, phases = solve_certain(sites, 0.02)
        sure = messages_per_efold(sites, 0.02, allowance, sum(p.length for p in phases), len(phases))
        assert plan_dithered(sites, 0.02, 1e-9).messages_per_efold <= sure


def test_any_shape_settles_into_a_round_that_holds() -> None:
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
def test_requests_outside_the_range_are_refused(sites: int, alpha: float, eta: float) -> None:
    with pytest.raises(InvalidParameter):
        plan_dithered(sites, alpha, eta)


# --- answers ---


def test_every_answer_in_the_range_is_within_alpha_of_both_ends() -> None:
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


def test_answers_never_fall_and_are_whole() -> None:
    plan = plan_dithered(100, 0.01, 1e-4)
    answers = [plan.answer(10**8, plan.step(10**8), index) for index in range(len(plan.phases))]
    assert answers == sorted(answers)
    assert all(isinstance(answer, int) for answer in answers)


def test_a_step_that_is_too_large_is_refused() -> None:
    plan = plan_dithered(100, 0.01, 1e-4)
    with pytest.raises(PlanError):
        plan.answer_range(10**6, 2 * plan.step(10**6), 0)


def test_a_larger_total_than_planned_for_is_fine() -> None:
    plan = plan_dithered(100, 0.01, 1e-4)
    for index in range(len(plan.phases)):
        plan.answer_range(2 * 10**8, plan.step(10**8), index)


# --- thresholds ---


def test_thresholds_stay_in_their_windows_and_in_order() -> None:
    rng = random.Random(33)  # noqa: S311
    plan = plan_dithered(300, 0.01, 1e-4)
    for _ in range(50):
        thresholds = plan.thresholds([rng.random() for _ in plan.phases])
        for threshold, phase in zip(thresholds, plan.phases, strict=True):
            assert abs(threshold - phase.position - phase.length) <= phase.dither / 2 + 1e-9
        assert all(later >= earlier for earlier, later in pairwise(thresholds))


def test_extreme_dice_give_the_corners() -> None:
    plan = plan_dithered(300, 0.01, 1e-4)
    lowest = plan.thresholds([0.0] * len(plan.phases))
    assert all(
        isclose(t, p.position + p.length - p.dither / 2, rel_tol=1e-12)
        for t, p in zip(lowest, plan.phases, strict=True)
    )


def test_thresholds_are_uniform_on_the_polytope() -> None:
    """Against rejection from the box, on a shape where half of the box is rejected: sorting it would not do.

    4,000 draws; the four means are compared to 7 standard errors: false alarm below 1e-10. Independent ones,
    sorted, are 12 standard errors off.
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


def test_the_density_is_the_inverse_volume() -> None:
    boxed = LaterThresholds(threshold_windows((10.0, 10.0), (4.0, 4.0)))  # in order whatever is drawn: area 16
    assert [round(boxed.log_share(j), 9) for j in range(3)] == [0.0, round(-log(4), 9), round(-log(16), 9)]
    # windows (8, 12] and (10, 14]: area 16 less the triangle of area 2
    tight = LaterThresholds(threshold_windows((10.0, 2.0), (4.0, 4.0)))
    assert isclose(tight.log_share(1), log(4 / 14))
    assert isclose(tight.log_share(2), -log(14))


def test_the_tangent_is_above_the_volume_of_later_thresholds() -> None:
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
@pytest.mark.parametrize(("sites", "alpha"), [(64, 0.01), (300, 0.01), (979, 0.000314), (1000, 0.49)])
def test_no_two_thresholds_crowd_into_a_grain(sites: int, alpha: float) -> None:
    """Section 4, drawing thresholds: the next threshold's density, twice a grain of it, is well below 0.01 nats."""
    plan = plan_dithered(sites, alpha, 1e-4)
    windows = threshold_windows(tuple(p.length for p in plan.phases), tuple(p.dither for p in plan.phases))
    later = LaterThresholds(windows)
    densities = [later.tangent(j, windows[j - 1][1])[1] for j in range(1, len(windows))]
    densities += [exp(later.log_share(j + 1) - later.log_share(j)) for j in range(1, len(windows))]
    assert 2 * max(densities) * plan.resolution < 0.004


@pytest.mark.parametrize("rng", [[], [0.5] * 3, [1.0] * 64, [-0.1] * 64])
def test_wrong_dice_are_refused(rng: list[float]) -> None:
    with pytest.raises(InvalidParameter):
        plan_dithered(100, 0.01, 1e-4).thresholds(rng)


def test_plans_are_remembered() -> None:
    assert plan_dithered(64, 0.01, 1e-4) is plan_dithered(64, 0.01, 1e-4)
    assert plan_dithered(64, 0.01, 1e-4).messages_per_efold < inf
