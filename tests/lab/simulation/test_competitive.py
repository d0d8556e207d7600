"""Claim C28: what `auto` costs against the best single scheme in hindsight, from the first event to any total."""

import pytest

from countless.lab.simulation.competitive import regret
from countless.lab.simulation.world import World
from support import streams as conformance

pytestmark = pytest.mark.slow

SINGLE = ("deterministic", "dithered", "sampled")
STREAMS = ("uniform", "zipf", "single", "hot_spots", "bursts")


def test_leaving_exact_reporting_is_paid_for_as_it_goes() -> None:
    """A thousand sites with a dozen events each: every one of them is told another pace on the way."""
    found = regret("uniform", 1_000, 12_000, alpha=0.05, adversary="sees-everything")
    assert found.ratio <= 1.1
    assert found.of_exact <= 1.09
    assert found.messages["auto"] < 0.95 * found.messages["deterministic"]


@pytest.mark.parametrize("sites", [2, 15])
def test_small_fleets(sites: int) -> None:
    found = regret("uniform", sites, 300 * sites, alpha=0.1, adversary="sees-everything")
    assert found.ratio == 1.0
    assert found.of_exact <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("sites", [1, 7, 40])
def test_few_sites(sites: int, stream: str) -> None:
    found = regret(stream, sites, 2_000 * sites, alpha=0.05)
    assert found.ratio <= 1.1
    assert found.of_exact <= 1.0  # deterministic all the way: never more than one message for each event


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "adversary"),
    [(stream, "adaptive") for stream in STREAMS] + [("uniform", "oblivious"), ("zipf", "sees-everything")],
)
def test_hundreds_of_sites(stream: str, adversary: str) -> None:
    found = regret(stream, 400, 400_000, alpha=0.02, adversary=adversary)
    assert found.ratio <= 1.1
    assert found.of_exact <= 1.09


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["uniform", "zipf"])
def test_thousands_of_sites(stream: str) -> None:
    found = regret(stream, 3_000, 100_000, alpha=0.02)
    assert found.ratio <= 1.1
    assert found.of_exact <= 1.09


@pytest.mark.slow
def test_ten_thousand_sites() -> None:
    """All sites are to be told while `dithered`, started at once, has had less than one message an event."""
    found = regret("uniform", 10_000, 80_000, alpha=0.02)
    assert found.ratio <= 1.1
    assert found.of_exact <= 1.09


@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS)
def test_coarse_answers(stream: str) -> None:
    """Sites are silent after five events each: asking them all for their counts would be a tenth of the bill."""
    found = regret(stream, 300, 90_000, alpha=0.1)
    assert found.ratio <= 1.1
    assert found.of_exact <= 1.0


@pytest.mark.slow
def test_a_forecast_that_is_wrong_is_corrected() -> None:
    """The hot spot wanders: the sites that have counted most are not those that will count next."""
    found = regret("hot_spots", 1_000, 100_000, alpha=0.02)
    assert found.ratio <= 1.1
    assert found.messages["auto"] < 0.8 * found.messages["deterministic"]


@pytest.mark.slow
@pytest.mark.parametrize("stream", conformance.STREAMS)
@pytest.mark.parametrize(("sites", "events"), [(1, 2_000), (10, 4_000), (100, 20_000), (1_000, 25_000)])
def test_the_streams_of_the_conformance_suite(sites: int, events: int, stream: str) -> None:
    """Event by event through the real sites and the real coordinator, at every event."""
    arrivals = list(conformance.stream_named(stream, sites, events, seed=1))
    worlds = [World(name, range(sites), alpha=0.01, delta=0.05, seed=1) for name in ("auto", *SINGLE)]
    for exact, (site, n) in enumerate(arrivals, 1):
        for world in worlds:
            world.add(site, n)
        auto, *single = (world.messages.total for world in worlds)
        assert auto <= 1.1 * min(exact, *single)
