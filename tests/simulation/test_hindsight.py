"""Claim C28: `auto` costs at most 1.1 times the best single scheme in hindsight, from the first event to any total."""

import pytest

from countless.simulation.hindsight import regret

STREAMS = ("uniform", "zipf", "single", "hot_spots", "bursts")


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("sites", [1, 7, 40])
def test_few_sites(sites: int, stream: str) -> None:
    found = regret(stream, sites, 5_000 * sites, alpha=0.05)
    assert found.ratio <= 1.1
    assert found.over_exact <= 0  # deterministic all the way: never more than one message for each event


@pytest.mark.slow
@pytest.mark.parametrize("adversary", ["adaptive", "sees-everything", "oblivious"])
@pytest.mark.parametrize("stream", STREAMS)
def test_hundreds_of_sites(stream: str, adversary: str) -> None:
    found = regret(stream, 400, 4_000_000, alpha=0.02, adversary=adversary)
    assert found.ratio <= 1.1
    # At the first change of scheme each busy site is told once, before that can have saved anything.
    assert found.over_exact <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["uniform", "zipf"])
def test_thousands_of_sites(stream: str) -> None:
    found = regret(stream, 5_000, 20_000_000, alpha=0.02)
    assert found.ratio <= 1.1
    assert found.over_exact <= 0.1
