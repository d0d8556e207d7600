"""What `auto` costs against the best single scheme in hindsight: `python -m bench auto` prints it for more streams."""

from collections.abc import Callable
from typing import Any

import pytest

from bench.auto import CompetitiveRatio, competitive_ratio
from countless.core.estimator import Scheme
from countless.planning.dithered.planner import plan_dithered
from countless.planning.oblivious import plan_lattice
from countless.schemes.dithered import Dithered
from countless.schemes.lattice import Lattice
from countless_lab.simulation.registry import stream_named
from countless_lab.simulation.run import fast_run
from countless_lab.simulation.world import World
from support import streams as conformance

pytestmark = pytest.mark.slow

STREAMS = ("uniform", "zipf", "single", "hot_spots", "bursts")


def ratio(stream: str, sites: int, events: int, alpha: float, adversary: str = "adaptive") -> CompetitiveRatio:
    return competitive_ratio(
        lambda: stream_named(stream, sites, events, seed=1), events, alpha=alpha, adversary=adversary
    )


@pytest.mark.soak
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("sites", [1, 7, 40])
def test_few_sites_stay_deterministic_and_never_cost_more_than_a_message_per_event(sites: int, stream: str) -> None:
    found = ratio(stream, sites, 2_000 * sites, 0.05)
    assert found.worst <= 1.1
    assert found.of_exact <= 1.0


@pytest.mark.soak
@pytest.mark.parametrize("stream", STREAMS)
def test_hundreds_of_sites_cost_about_as_much_as_the_best_scheme(stream: str) -> None:
    found = ratio(stream, 400, 400_000, 0.02)
    assert found.worst <= 1.2
    assert found.at_end <= 1.05


def test_hundred_sites_at_five_percent_stay_deterministic_where_a_plan_would_save_a_tenth() -> None:
    course = fast_run("auto", stream_named("uniform", 100, 200_000, seed=1), 200_000, alpha=0.05, delta=0.05, seed=1)
    assert {point.scheme for point in course.course} == {"deterministic"}


@pytest.mark.parametrize(("scheme", "make_plan"), [(Lattice, plan_lattice), (Dithered, plan_dithered)])
@pytest.mark.parametrize(("sites", "alpha"), [(100, 0.05), (300, 0.02)])
def test_rounds_cost_what_their_plan_says(
    scheme: Callable[[Any], Scheme], make_plan: Callable[..., Any], sites: int, alpha: float
) -> None:
    """`auto` compares schemes by these prices: a price that leaves a tenth out makes it choose a dearer scheme."""
    events, plan = 5_000_000, make_plan(sites, alpha, 1e-4)
    run = fast_run(
        scheme(plan), stream_named("uniform", sites, events, seed=1), events, alpha=alpha, delta=0.05, seed=1
    )
    starts = {point.round: point.messages for point in reversed(run.course) if point.events > 20_000}
    last, *_, first, _ = starts.values()  # the messages at the first point of each round, the last round first
    per_round = (last - first) / (len(starts) - 2)
    assert 0.95 * plan.messages_per_round <= per_round <= 1.05 * plan.messages_per_round


@pytest.mark.soak
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(
    ("sites", "events", "alpha", "worst"), [(1_000, 500_000, 0.05, 1.3), (3_000, 1_000_000, 0.1, 1.8)]
)
def test_thousands_of_sites_cost_about_as_much_as_the_best_scheme(
    stream: str, sites: int, events: int, alpha: float, worst: float
) -> None:
    found = ratio(stream, sites, events, alpha)
    assert found.worst <= worst
    assert found.at_end <= 1.05


# The worst moment is the first synchronisation: two messages per site, when a site has had only a few events.
@pytest.mark.soak
@pytest.mark.parametrize(
    ("stream", "sites", "events", "alpha", "adversary", "worst"),
    [
        *((stream, 300, 90_000, 0.1, "adaptive", 1.35) for stream in STREAMS),
        ("uniform", 400, 400_000, 0.02, "oblivious", 1.25),
        ("zipf", 400, 400_000, 0.02, "sees-everything", 1.1),
        ("uniform", 1_000, 12_000, 0.05, "sees-everything", 1.3),
        ("hot_spots", 1_000, 100_000, 0.02, "adaptive", 1.1),
        ("uniform", 3_000, 100_000, 0.02, "adaptive", 1.35),
        ("zipf", 3_000, 100_000, 0.02, "adaptive", 1.2),
        ("uniform", 10_000, 80_000, 0.02, "adaptive", 1.45),
    ],
)
def test_short_streams_of_large_fleets_cost_at_most_so_much_more_than_the_best_scheme(
    stream: str, sites: int, events: int, alpha: float, adversary: str, worst: float
) -> None:
    found = ratio(stream, sites, events, alpha, adversary)
    assert found.worst <= worst
    assert found.at_end <= 1.1
    assert found.of_exact <= worst


@pytest.mark.soak
@pytest.mark.parametrize("stream", conformance.STREAMS)
@pytest.mark.parametrize(("sites", "events"), [(1, 2_000), (10, 4_000), (100, 20_000), (1_000, 25_000)])
def test_every_event_costs_at_most_a_tenth_more_than_the_best_scheme(sites: int, events: int, stream: str) -> None:
    """At every event, with the real sites and the real coordinator, at alpha = 1 %."""
    single = ("deterministic", "dithered", "sampled")
    worlds = [World(name, range(sites), alpha=0.01, delta=0.05, seed=1) for name in ("auto", *single)]
    for exact, (site, n) in enumerate(conformance.stream_named(stream, sites, events, seed=1), 1):
        for world in worlds:
            world.add(site, n)
        auto, *others = (world.messages.total for world in worlds)
        assert auto <= 1.1 * min(exact, *others)
