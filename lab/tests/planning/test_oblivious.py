"""`lattice`, `blocks`, `hyz`: moments against exact laws, plans against simulated rounds."""

from collections.abc import Callable
from math import ceil, exp, inf, log, log1p, sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core.parameters import exact_fraction
from countless.errors import InvalidParameter
from countless.planning.oblivious import LATTICE, Horizon, ObliviousPlan, SiteError, allowance, plan_lattice
from countless.planning.plan import Plan
from countless_lab.confidence import quantile
from countless_lab.planning.blocks import BLOCKS, plan_blocks
from countless_lab.planning.hyz import HYZ, plan_hyz

Planner = Callable[[int, float, float], ObliviousPlan]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SCHEMES: list[tuple[Planner, SiteError]] = [(plan_lattice, LATTICE), (plan_blocks, BLOCKS), (plan_hyz, HYZ)]
TILTS = [0.003, 0.05, 0.3, 0.8, 0.99]


def moment(values: Floats, chances: Floats, tilt: float) -> float:
    assert float(chances.sum()) == pytest.approx(1)
    assert abs(float(np.dot(values, chances))) < 1e-9
    possible = chances > 0
    return log(float(np.dot(np.exp(tilt * values[possible]), chances[possible])))


@pytest.mark.parametrize("tilt", [*TILTS, 5.0, 40.0])
@pytest.mark.parametrize("step", [2, 3, 10, 2000])
def test_lattice_moment(step: int, tilt: float) -> None:
    values = (np.arange(step) - (step - 1) / 2) / step
    exact = moment(values, np.full(step, 1 / step), tilt)
    assert exact <= LATTICE.log_moment(tilt) * (1 + 1e-9) <= tilt**2 / 24 * (1 + 1e-8)
    if step == 2000:
        assert exact == pytest.approx(LATTICE.log_moment(tilt), rel=2e-3)


@pytest.mark.parametrize("tilt", [*TILTS, 5.0])
@pytest.mark.parametrize("seen", [0.0, 0.01, 0.3, 0.5, 0.9])
def test_blocks_moment(seen: float, tilt: float) -> None:
    for sign in (1, -1):
        values, chances = np.array([-seen, 1 - seen]), np.array([1 - seen, seen])
        assert moment(sign * values, chances, tilt) <= BLOCKS.log_moment(tilt) * (1 + 1e-9)


@pytest.mark.parametrize("tilt", TILTS)
@pytest.mark.parametrize("step", [1, 2, 7, 100])
@pytest.mark.parametrize("events", [0, 1, 3, 40, 2000])
def test_hyz_moment(events: int, step: int, tilt: float) -> None:
    p = 1 / step
    since = np.arange(events)
    values = np.append(step - 1 - since, -events) / step
    chances = np.append(p * (1 - p) ** since, (1 - p) ** events)
    assert moment(values, chances, tilt) <= HYZ.log_moment(tilt) + 1e-12
    assert moment(-values, chances, tilt) <= HYZ.log_moment(tilt) + 1e-12
    assert float(np.dot(values**2, chances)) <= 1 + 1e-9


def test_hyz_tail_in_bernsteins_form() -> None:
    for u in (0.01, 0.2, 1.0, 7.0):
        best = min(HYZ.log_moment(s) - s * u for s in np.linspace(0.0005, 0.999, 4000))
        assert best == pytest.approx(-(u - log1p(u)), rel=1e-3)
        assert u - log1p(u) >= u * u / (2 + 4 * u / 3)


@pytest.mark.parametrize("sites", [1, 2, 5, 12])
def test_lattice_tail_against_the_exact_convolution(sites: int) -> None:
    step = 16
    law: Floats = np.ones(1)
    for _ in range(sites):
        law = np.convolve(law, np.full(step, 1 / step))
    error = (np.arange(len(law)) - (len(law) - 1) / 2) / step
    for x in np.linspace(0.05, 0.49, 9) * sites:
        bound = exp(min(sites * LATTICE.log_moment(s) - s * x for s in np.geomspace(0.01, 60, 200)))
        assert float(law[error > x].sum()) <= bound


def bound(plan: ObliviousPlan, error: SiteError, end: float, step: int) -> float:
    """The bound of a finished plan up to time `end`, event by event for one step, with the best s and h."""
    last = ceil(end * step)
    least = inf
    for s in np.geomspace(0.05, min(4.0, error.max_tilt), 60):
        for h in {ceil(horizon / s) for horizon in (2.0, 2.5, 3.0)}:
            after = np.arange(h * step) / step  # around a failure
            time = np.arange(1 - h * step, last + h * step) / step
            nats = plan.sites * error.log_moment(float(s)) - s * (plan.allowance + plan.alpha * time)
            sums = np.exp(np.minimum(nats, 99))
            above = sums[time >= 0].sum() / np.exp(-s * (1 + plan.alpha) * after).sum()
            below = sums[time <= last / step].sum() / np.exp(-s * (1 - plan.alpha) * after).sum()
            least = min(least, float(above + below))
    return least


def bound_of_round(plan: ObliviousPlan, error: SiteError, step: int) -> float:
    if plan.scheme != "hyz":
        return bound(plan, error, (plan.reports - 1 + 2 * plan.allowance) / (1 - plan.alpha) + 1, step)
    nats = log(64 / plan.eta)
    horizon = plan.reports + nats + sqrt(nats**2 + 2 * plan.reports * nats)
    return min(bound(plan, error, 3 * horizon, step), plan.eta / 64 + bound(plan, error, horizon, step))


@pytest.mark.parametrize(("planner", "error"), SCHEMES)
@pytest.mark.parametrize(("sites", "alpha", "eta"), [(40, 0.05, 0.1), (500, 0.1, 1e-4), (200, 0.04, 1e-9)])
def test_oblivious_failure_bound_is_within_eta(
    planner: Planner, error: SiteError, sites: int, alpha: float, eta: float
) -> None:
    plan = planner(sites, alpha, eta)
    for step in (2, 12):
        assert 0.6 * eta < bound_of_round(plan, error, step) <= eta


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.sampled_from([0.01, 0.1, 0.4]),
    st.sampled_from([0.05, 0.5, 3.0]),
    st.integers(2, 6),
    st.sampled_from([1, -1]),
    st.integers(-4, 4),
)
def test_failing_path_has_the_claimed_least_sum(
    rises: list[int], alpha: float, s: float, step: int, side: int, start: int
) -> None:
    """Any estimate that never falls; the allowance is such that the path just fails, at its worst event."""
    h = 2
    rises = [0] * (h * step) + rises + [0] * (h * step)  # in the worst case nothing rises around a failure
    time = (np.arange(len(rises)) - h * step) / step
    estimate = start + np.cumsum(rises) / step
    estimate[time < 0] = estimate[h * step] + time[time < 0]  # before the round the error is as at its start
    error = side * (estimate - time) - alpha * time
    inside = slice(h * step, len(rises) - h * step)
    E = float(error[inside].max())
    fails = h * step + int(error[inside].argmax())
    seen = slice(fails, fails + h * step) if side > 0 else slice(fails - h * step + 1, fails + 1)
    least = np.exp(-s * (1 + side * alpha) * np.arange(h * step) / step).sum()
    assert np.exp(s * (error - E))[seen].sum() >= least * (1 - 1e-9)


def reported(
    scheme: str, who: Ints, rank: Ints, step: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Which events are reported, and the estimate (of the events since the start) after each event."""
    sites = int(who.max()) + 1
    if scheme == "lattice":
        offset = rng.integers(0, step, sites)
        reports = (rank - offset[who]) % step == 0
        start = float(((step - 1) / 2 - (-offset) % step).sum())
        return reports, start + step * np.cumsum(reports)
    if scheme == "blocks":
        place = rng.integers(1, step + 1, (sites, int(rank.max()) // step + 1))
        reports = (rank - 1) % step + 1 == place[who, (rank - 1) // step]
        return reports, (step * np.cumsum(reports)).astype(float)
    reports = rng.random(len(who)) < 1 / step
    jump = np.zeros(len(who))
    last = np.full(sites, 1 - step)  # so that the first report jumps by gap - 1 + step
    for event in np.flatnonzero(reports):
        jump[event] = rank[event] - last[who[event]]
        last[who[event]] = rank[event]
    return reports, np.cumsum(jump)


def failures(plan: ObliviousPlan, scale: float, rounds: int, seed: int) -> int:
    """Rounds that leave 1 ± alpha at some event before the m-th report, from scale * the least total on."""
    rng = np.random.default_rng(seed)
    step = 20
    total = ceil(scale * plan.allowance * step / plan.alpha)
    events = ceil(step * (1.5 * plan.reports + 6 * plan.allowance))
    who = rng.integers(0, plan.sites, events)
    who[:: plan.sites] = 0  # one site is busier than the others
    rank = np.zeros(events, dtype=np.int64)
    for site in range(plan.sites):
        mine = who == site
        rank[mine] = np.arange(1, int(mine.sum()) + 1)
    truth = np.arange(1, events + 1)
    broken = 0
    for _ in range(rounds):
        reports, estimate = reported(plan.scheme, who, rank, step, rng)
        end = int(np.searchsorted(np.cumsum(reports), plan.reports))
        wrong = np.abs(estimate - truth) > plan.alpha * (total + truth)
        broken += bool(wrong[:end].any())
    return broken


@pytest.mark.slow
@pytest.mark.parametrize("planner", [plan_lattice, plan_blocks, plan_hyz])
def test_simulated_oblivious_rounds_fail_with_at_most_eta(planner: Planner) -> None:
    """300 rounds, eta = 1/4: a correct plan fails this test with probability below 1e-9 (exact binomial)."""
    rounds, eta = 300, 0.25
    plan = planner(40, 0.03, eta)
    limit = quantile(rounds, eta, 1e-9)[1]
    assert failures(plan, 1.0, rounds, seed=20230711) <= limit
    assert failures(plan, 0.3, rounds, seed=20230711) > limit, "the test would not notice a broken plan"


# Messages per e-fold of `lattice` by a union bound over events, over k/ln((1+alpha)/(1-alpha)), eta = 1e-4.
TABLE = [
    (64, 0.01, 0.65),
    (256, 0.01, 0.37),
    (1_000, 0.01, 0.22),
    (4_000, 0.01, 0.14),
    (10_000, 0.01, 0.10),
    (100_000, 0.01, 0.055),
    (1_000, 0.001, 0.15),
    (10_000, 0.001, 0.057),
    (1_000, 0.05, 0.38),
]


def formula_cost(sites: int, alpha: float, eta: float, divisor: float) -> float:
    """By a union bound over events: E = 1 + sqrt((k/divisor) ln(2(m+2E+3)/eta)), the best m."""
    best = inf
    for m in np.geomspace(1, 100 * sites + 1000, 400):
        E = 1.0
        for _ in range(40):
            E = 1 + sqrt(sites / divisor * log(2 * (m + 2 * E + 3) / eta))
        best = min(best, (m + 2 * sites) / log1p(alpha * m / E))
    return best


@pytest.mark.parametrize(("sites", "alpha", "ratio"), TABLE)
def test_lattice_and_blocks_cost_less_than_a_union_bound(sites: int, alpha: float, ratio: float) -> None:
    deterministic = sites / log((1 + alpha) / (1 - alpha))
    cost = plan_lattice(sites, alpha, 1e-4).messages_per_efold
    assert cost / deterministic <= ratio
    assert cost <= 0.96 * formula_cost(sites, alpha, 1e-4, 6)
    assert plan_blocks(sites, alpha, 1e-4).messages_per_efold <= 0.96 * formula_cost(sites, alpha, 1e-4, 2)


requests = st.tuples(
    st.integers(1, 10**6),
    st.floats(-5, -0.31).map(lambda x: 10**x),
    st.floats(-30, -0.31).map(lambda x: 10**x),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(requests, st.sampled_from(SCHEMES))
def test_oblivious_plans_grow_with_sites_and_safety(
    request: tuple[int, float, float], scheme: tuple[Planner, SiteError]
) -> None:
    planner, error = scheme
    sites, alpha, eta = request
    plan = planner(sites, alpha, eta)
    assert 0 < plan.allowance <= sites * error.max_error
    assert plan.reports >= 1
    assert {reason.number for reason in plan.reasons} >= {"allowance", "reports", "messages_per_efold"}
    more, surer = planner(sites + 1 + sites // 5, alpha, eta), planner(sites, alpha, eta / 8)
    assert more.allowance > plan.allowance
    assert more.messages_per_efold > plan.messages_per_efold
    assert surer.allowance >= plan.allowance
    assert surer.messages_per_efold >= plan.messages_per_efold


@settings(max_examples=60, deadline=None, derandomize=True)
@given(requests, st.floats(1, 1e7), st.sampled_from([LATTICE, BLOCKS, HYZ]))
def test_longer_round_needs_a_larger_allowance(
    request: tuple[int, float, float], horizon: float, error: SiteError
) -> None:
    sites, alpha, eta = request
    short = allowance(error, sites, alpha, eta, Horizon(horizon))
    long = allowance(error, sites, alpha, eta, Horizon(2 * horizon))
    assert short <= long * 1.005 <= 1.005**2 * allowance(error, sites, alpha, eta, Horizon(inf))


def test_single_site_allowance_is_its_largest_error() -> None:
    assert plan_lattice(1, 0.01, 1e-6).allowance == 0.5
    assert plan_blocks(1, 0.01, 1e-6).allowance == 1.0


@pytest.mark.parametrize("planner", [plan_lattice, plan_blocks, plan_hyz])
def test_oblivious_step_is_rounded_down(planner: Planner) -> None:
    plan: Plan = planner(100, 0.01, 1e-4)
    for total in (10**5, 10**9 + 7):
        step = plan.step(total)
        assert step * planner(100, 0.01, 1e-4).allowance <= exact_fraction(0.01) * total


@pytest.mark.parametrize("planner", [plan_lattice, plan_blocks, plan_hyz])
@pytest.mark.parametrize(("sites", "alpha", "eta"), [(0, 0.01, 0.1), (5, 0.6, 0.1), (5, 0.1, 0.0)])
def test_invalid_oblivious_requests_are_refused(planner: Planner, sites: int, alpha: float, eta: float) -> None:
    with pytest.raises(InvalidParameter):
        planner(sites, alpha, eta)
