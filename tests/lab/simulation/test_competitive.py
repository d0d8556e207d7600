"""What `auto` costs against the best single scheme in hindsight: `python -m bench auto` prints it for more streams."""

import pytest

from countless.lab.simulation.competitive import regret

pytestmark = pytest.mark.slow

STREAMS = ("uniform", "zipf", "single", "hot_spots", "bursts")


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("sites", [1, 7, 40])
def test_few_sites(sites: int, stream: str) -> None:
    found = regret(stream, sites, 2_000 * sites, alpha=0.05)
    assert found.ratio <= 1.1
    assert found.of_exact <= 1.0  # deterministic all the way: never more than one message for each event


@pytest.mark.parametrize("stream", STREAMS)
def test_hundreds_of_sites(stream: str) -> None:
    found = regret(stream, 400, 400_000, alpha=0.02)
    assert found.ratio <= 1.2
    best_at_end = min(messages for name, messages in found.messages.items() if name != "auto")
    assert found.messages["auto"] <= 1.05 * best_at_end
