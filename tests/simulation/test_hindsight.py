"""Claim C28: what `auto` costs against the best single scheme in hindsight, from the first event to any total."""

import pytest

from countless.simulation.hindsight import regret

STREAMS = ("uniform", "zipf", "single", "hot_spots", "bursts")


@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("sites", [1, 7, 40])
def test_few_sites(sites: int, stream: str) -> None:
    found = regret(stream, sites, 2_000 * sites, alpha=0.05)
    assert found.ratio <= 1.1
    assert found.over_exact <= 0  # deterministic all the way: never more than one message for each event


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "adversary"),
    [(stream, "adaptive") for stream in STREAMS] + [("uniform", "oblivious"), ("zipf", "sees-everything")],
)
def test_hundreds_of_sites(stream: str, adversary: str) -> None:
    found = regret(stream, 400, 400_000, alpha=0.02, adversary=adversary)
    assert found.settled <= 1.1
    assert found.ratio <= 1.2
    assert found.over_exact <= 1.5


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["uniform", "zipf"])
def test_thousands_of_sites(stream: str) -> None:
    found = regret(stream, 3_000, 300_000, alpha=0.02)
    assert found.settled <= 1.1
    assert found.ratio <= 1.2
    assert found.over_exact <= 1.5
