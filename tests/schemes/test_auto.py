"""`auto`: the cheapest proven scheme at every round start, never a weaker one, never more failure than delta."""

from fractions import Fraction

import pytest

from countless import Tracker
from countless.core.estimator import KeepRound, RoundContext, RoundSetup
from countless.core.random_source import RandomSource
from countless.schemes.auto import CANDIDATES, Auto
from countless.schemes.deterministic import DeterministicEstimator
from countless.schemes.registry import ADVERSARIES, SCHEMES, is_safe_against
from support.streams import stream_named

pytestmark = pytest.mark.slow

DELTA = 1e-9


class Watched(Auto):
    """Records the rounds that it opens."""

    def __init__(self, adversary: str = "adaptive") -> None:
        super().__init__(adversary)
        self.opened: list[tuple[RoundContext, RoundSetup]] = []

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        setup = super().open_round(context, rng)
        if isinstance(setup, RoundSetup):
            self.opened.append((context, setup))
        return setup


def run(scheme: Auto, sites: int, alpha: float, *parts: tuple[str, int, int]) -> Tracker:
    """Each part is a stream, how many events, and in batches of how many."""
    tracker, total = Tracker(sites=sites, alpha=alpha, delta=DELTA, scheme=scheme, seed=1), 0
    for name, events, batch in parts:
        for site, n in stream_named(name, sites, events, seed=1):
            tracker.site(site).add(n * batch)
            total += n * batch
            assert tracker.answer.contains(total)
    return tracker


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_auto_never_considers_a_weaker_scheme(adversary: str) -> None:
    assert all(is_safe_against(scheme.name, adversary) for scheme in CANDIDATES[adversary])
    assert is_safe_against("deterministic", adversary)


@pytest.mark.slow
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_auto_never_picks_a_weaker_scheme(adversary: str) -> None:
    scheme = Watched(adversary)
    run(scheme, 300, 0.03, ("uniform", 40_000, 1), ("uniform", 5_000, 50))
    picked = {setup.scheme for _, setup in scheme.opened}
    assert len(picked) > 1 or adversary == "sees-everything"  # where `sampled` pays only for more sites
    assert all(is_safe_against(name, adversary) for name in picked)


@pytest.mark.slow
def test_failures_of_all_rounds_sum_to_less_than_delta() -> None:
    """Whatever their schemes: a plan's eta for its round, nothing for deterministic rounds, and no round twice."""
    scheme = Watched()
    run(scheme, 300, 0.03, ("uniform", 30_000, 1), ("single_site", 2_000, 200), ("uniform", 20_000, 100))
    planned = [(context.round, setup.plan) for context, setup in scheme.opened if setup.scheme != "deterministic"]
    assert len(planned) >= 3
    numbers = [number for number, _ in planned]
    assert len(set(numbers)) == len(numbers)
    etas = [Fraction(getattr(plan, "eta")) for _, plan in planned]  # noqa: B009 - plans are of several kinds
    assert sum(etas) <= Fraction(DELTA)
    for (number, _), eta in zip(planned, etas, strict=True):
        assert eta <= Fraction(DELTA) / (number * (number + 1))


@pytest.mark.parametrize(("sites", "alpha"), [(300, 0.03), (3000, 0.1)])
def test_one_busy_site_stays_deterministic(sites: int, alpha: float) -> None:
    """The reports of one site give the total; snapshots of the idle sites would only cost messages."""
    scheme = Watched()
    tracker = run(scheme, sites, alpha, ("single_site", 20_000, 50))
    assert {setup.scheme for _, setup in scheme.opened} == {"deterministic"}
    assert (tracker.answer.round, tracker.messages.down) == (0, 0)


def test_few_sites_stay_deterministic() -> None:
    scheme = Watched()
    run(scheme, 5, 0.1, ("uniform", 20_000, 50))
    assert {setup.scheme for _, setup in scheme.opened} == {"deterministic"}


def test_many_busy_sites_leave_deterministic() -> None:
    scheme = Watched()
    tracker = run(scheme, 300, 0.03, ("uniform", 50_000, 1))
    assert tracker.answer.scheme == "dithered"


@pytest.mark.slow
def test_auto_leaves_deterministic_when_one_busy_site_becomes_many() -> None:
    scheme = Watched()
    run(scheme, 300, 0.03, ("single_site", 1_000, 10), ("uniform", 40_000, 20))
    assert scheme.opened[0][1].scheme == "deterministic"
    assert scheme.opened[-1][1].scheme == "dithered"


@pytest.mark.slow
def test_auto_costs_less_than_deterministic_where_many_sites_are_busy() -> None:
    costs = {}
    for name in ("auto", "deterministic"):
        tracker = Tracker(sites=300, alpha=0.03, scheme=name, seed=1)
        for site, n in stream_named("uniform", 300, 60_000, seed=2):
            tracker.site(site).add(n)
        costs[name] = tracker.messages.total
    assert costs["auto"] < 0.9 * costs["deterministic"]


def test_auto_sends_nothing_while_it_stays_deterministic() -> None:
    """To keep the round takes no message: the estimator only gets a later `reconsider_at`."""
    tracker = Tracker(sites=5, alpha=0.1, scheme=Auto(), seed=1)
    estimator = tracker._debug_state().estimator
    assert isinstance(estimator, DeterministicEstimator)
    reconsider_at = estimator.reconsider_at
    for event in range(20_000):
        tracker.site(event % 5).add()
    assert tracker._debug_state().estimator is estimator
    assert estimator.reconsider_at is not None
    assert reconsider_at is not None
    assert estimator.reconsider_at > reconsider_at
    assert tracker.messages.down == 0


def test_every_scheme_has_its_place_in_the_order_of_adversaries() -> None:
    for name in SCHEMES:
        assert is_safe_against(name, "oblivious")
        assert not (is_safe_against(name, "sees-everything") and not is_safe_against(name, "adaptive"))
