"""What `auto` costs against the best single scheme in hindsight: `python -m bench auto` prints it for more streams."""

import pytest

from countless.lab.simulation.competitive import CompetitiveRatio, competitive_ratio
from countless.lab.simulation.registry import stream_named

pytestmark = pytest.mark.slow

STREAMS = ("uniform", "zipf", "single", "hot_spots", "bursts")


def ratio(stream: str, sites: int, events: int, alpha: float) -> CompetitiveRatio:
    return competitive_ratio(lambda: stream_named(stream, sites, events, seed=1), events, alpha=alpha)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("sites", [1, 7, 40])
def test_few_sites_stay_deterministic_and_never_cost_more_than_a_message_per_event(sites: int, stream: str) -> None:
    found = ratio(stream, sites, 2_000 * sites, 0.05)
    assert found.worst <= 1.1
    assert found.of_exact <= 1.0


@pytest.mark.parametrize("stream", STREAMS)
def test_hundreds_of_sites_cost_about_as_much_as_the_best_scheme(stream: str) -> None:
    found = ratio(stream, 400, 400_000, 0.02)
    assert found.worst <= 1.2
    assert found.at_end <= 1.05
