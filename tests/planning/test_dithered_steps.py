"""Steps for each slot of a `dithered` round: the independent check accepts what is chosen, and refuses more."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import exp, isclose, log, log2, pi

import pytest

from countless.errors import PlanError
from countless.planning.dithered.check import check_dithered
from countless.planning.dithered.plan import DitheredPlan
from countless.planning.dithered.planner import plan_dithered
from countless.planning.dithered.ready_made import quick_plan_dithered
from countless.planning.dithered.schedule import Shape, solve
from countless.planning.dithered.steps import _room, _tilts, covers, density_gain, steps_for
from countless.planning.dithered.tails import cumulant, variance


def short_plan(sites: int, alpha: float = 0.1, eta: float = 0.01) -> DitheredPlan:
    """Three phases: soon made, however many sites."""
    unit = sites**0.5
    shape = Shape((3 * unit, unit, unit), (unit / 2, unit / 2, unit / 2))
    plan = DitheredPlan(sites, alpha, eta, *solve(sites, alpha, eta, shape), ())
    check_dithered(plan)
    return plan


PLANS: dict[str, Callable[[], DitheredPlan]] = {
    "few sites, certain": lambda: plan_dithered(3, 0.01, 1e-4),
    "40 sites": lambda: plan_dithered(40, 0.05, 1e-3),
    "128 sites": lambda: plan_dithered(128, 0.05, 1e-6),
    "3,000 sites, short": lambda: short_plan(3_000),
    "of the table": lambda: quick_plan_dithered(112, 0.05, 2.0**-8),
}
TRAFFIC: dict[str, Callable[[int, random.Random], float]] = {
    "balanced": lambda site, rng: 1.0,
    "zipf": lambda site, rng: 1 / (site + 1),
    "steep": lambda site, rng: (site + 1) ** -1.5,
    "one in twenty absent": lambda site, rng: 1.0 if site % 20 else 0.0,
    "one in ten": lambda site, rng: 8.0 if site % 10 == 0 else 1.0,
    "a few busy": lambda site, rng: 1.0 if site < 3 else 0.0,
    "random": lambda site, rng: exp(rng.gauss(0, 2)),
}


@cache
def plan_named(name: str) -> DitheredPlan:
    return PLANS[name]()


def refused(plan: DitheredPlan, step: int, steps: list[int]) -> bool:
    try:
        check_dithered(plan, step, steps)
    except PlanError:
        return True
    return False


def expected_events(plan: DitheredPlan, traffic: str, step: int) -> list[float]:
    rng = random.Random(7)  # noqa: S311
    shares = [TRAFFIC[traffic](site, rng) for site in range(plan.sites)]
    return [share / sum(shares) * step * plan.steps_per_round for share in shares]


@pytest.mark.parametrize("traffic", TRAFFIC)
@pytest.mark.parametrize("step", [2, 7, 100, 10**9])
@pytest.mark.parametrize("name", PLANS)
def test_chosen_steps_pass_the_check(name: str, step: int, traffic: str) -> None:
    plan = plan_named(name)
    expected = expected_events(plan, traffic, step)
    steps = steps_for(plan, step, expected)
    check_dithered(plan, step, steps)
    assert min(steps) >= max(1, step // 5)
    reports = sum(events / own for events, own in zip(expected, steps, strict=True))
    assert steps == [step] * plan.sites or reports <= 0.995 * sum(expected) / step
    assert traffic != "balanced" or steps == [step] * plan.sites


@pytest.mark.parametrize("name", ["40 sites", "128 sites", "3,000 sites, short"])
def test_chosen_steps_of_zipf_traffic_are_near_the_optimum(name: str) -> None:
    plan, step = plan_named(name), 10**6
    expected = expected_events(plan, "zipf", step)
    steps = steps_for(plan, step, expected)
    reports = sum(events / own for events, own in zip(expected, steps, strict=True))
    optimum = sum(events ** (2 / 3) for events in expected) ** 1.5 / plan.sites**0.5 / step
    limit = 1.06 if plan.sites == 3_000 else 1.002  # of three phases only: the density is a large part of the bound
    assert optimum < reports < limit * optimum


def scaled(sizes: list[float], step: int, mean: float) -> list[int]:
    return [max(1, round(step * size / mean)) for size in sizes]


@pytest.mark.parametrize("traffic", ["zipf", "steep", "one in ten", "random"])
@pytest.mark.parametrize("name", ["40 sites", "128 sites", "3,000 sites, short"])
def test_steps_with_the_right_arithmetic_mean_are_refused(name: str, traffic: str) -> None:
    plan, step = plan_named(name), 10**6
    sizes = [events ** (1 / 3) for events in expected_events(plan, traffic, step)]
    steps = scaled(sizes, step, sum(sizes) / plan.sites)
    assert refused(plan, step, steps)
    assert not covers(plan, step, Counter(steps))


def test_root_mean_square_alone_is_not_enough() -> None:
    """The density of the sum is smaller with unequal steps: with many sites this is more than the exponent gains."""
    plan, step = plan_named("3,000 sites, short"), 10**6
    rng = random.Random(3)  # noqa: S311
    sizes = [exp(rng.gauss(0, 0.3)) for _ in range(plan.sites)]
    steps = scaled(sizes, step, (sum(size**2 for size in sizes) / plan.sites) ** 0.5 * (1 + 1e-7))
    assert sum(own**2 for own in steps) <= plan.sites * step**2
    assert refused(plan, step, steps)
    assert not covers(plan, step, Counter(steps))


@pytest.mark.parametrize("name", ["40 sites", "128 sites", "3,000 sites, short", "of the table"])
def test_covered_steps_pass_the_check(name: str) -> None:
    """At random: a few sizes, scaled to about the limit. The check refuses no steps that `covers` accepts."""
    plan, step, rng = plan_named(name), 10**6, random.Random(11)  # noqa: S311
    covered = by_room = 0
    without_room = replace(plan, eta=sum(phase.risk for phase in plan.phases))
    for _ in range(12):
        kinds = [exp(rng.gauss(0, 0.7)) for _ in range(rng.randint(2, 5))]
        sizes = [rng.choice(kinds) for _ in range(plan.sites)]
        rms = (sum(size**2 for size in sizes) / plan.sites) ** 0.5
        steps = scaled(sizes, step, rms * rng.uniform(0.98, 1.08))
        if covers(plan, step, Counter(steps)):
            covered += 1
            by_room += not covers(without_room, step, Counter(steps))
            check_dithered(plan, step, steps)
    assert covered >= 3
    assert (by_room > 0) == (name == "of the table")  # the risks of the others add up to eta


def test_room_for_unequal_steps_is_what_the_stated_risks_leave_of_eta() -> None:
    plan = plan_named("40 sites")
    risk = sum(phase.risk for phase in plan.phases)
    not_stated = replace(plan, phases=tuple(replace(phase, risk=0.0) for phase in plan.phases))
    for each, room in (
        (replace(plan, eta=1.3 * risk), log(1.3)),
        (replace(plan, eta=risk / 2), 0.0),
        (not_stated, 0.0),
    ):
        assert isclose(_room(each), room, abs_tol=2e-9)


def test_slots_without_events_leave_larger_steps_to_the_others() -> None:
    plan, step = plan_named("of the table"), 10**6
    expected = expected_events(plan, "one in twenty absent", step)
    steps = Counter(steps_for(plan, step, expected))
    absent = expected.count(0.0)
    limit = step * ((plan.sites - absent / 25) / (plan.sites - absent)) ** 0.5  # the root mean square is `step`
    assert steps.keys() == {step // 5, max(steps)}
    assert 0.999 * limit < max(steps) <= limit


@pytest.mark.parametrize("name", ["40 sites", "128 sites", "3,000 sites, short"])
def test_tails_are_compared_at_every_tilt_between_those_of_the_grid(name: str) -> None:
    plan, step = plan_named(name), 10**6
    steps = Counter(steps_for(plan, step, expected_events(plan, "zipf", step)))
    widths = sorted(((size / step, slots) for size, slots in steps.items()), reverse=True)
    tilts = _tilts(plan)
    for tilt in (tilts[0] * (tilts[-1] / tilts[0]) ** (i / 500) for i in range(501)):
        advantage = plan.sites * cumulant(tilt)[0] - sum(n * cumulant(width * tilt)[0] for width, n in widths)
        assert advantage >= density_gain([(1.0, plan.sites)], tilt) - density_gain(widths, tilt)


def test_density_gain_of_equal_steps_is_that_of_the_planner() -> None:
    assert isclose(density_gain([(1.0, 50)], 1.7), log(1.7 * (2 * pi * variance(1.7) * 48.5) ** 0.5))


def test_too_few_steps_are_refused() -> None:
    plan = plan_named("40 sites")
    with pytest.raises(PlanError, match="a step of at least 1 for each slot"):
        check_dithered(plan, 100, [100] * 39)
    assert not covers(plan, 100, Counter({100: 20, 99: 19}))


def test_sites_with_the_same_class_of_traffic_have_the_same_step() -> None:
    plan = plan_named("128 sites")
    expected = [2.0 ** (site % 8) * (1 + 0.05 * (site % 3)) for site in range(plan.sites)]
    steps = steps_for(plan, 1000, expected)
    assert len(set(steps)) <= len({round(4 * log2(events)) for events in expected})


def test_no_step_is_below_a_fifth_of_the_step_of_the_plan() -> None:
    plan = plan_dithered(100, 0.01, 1e-4)
    for step in (2, 7, 1000):
        assert min(steps_for(plan, step, [1e6] * 20 + [1e-3] * 80)) >= step / 5
