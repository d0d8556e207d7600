"""Messages of flushes, against a direct count."""

from collections.abc import Iterable

import pytest

from countless_lab.simulation.baselines import flush_messages
from countless_lab.simulation.registry import STREAMS, stream_named


def direct_count(order: Iterable[int], per_interval: float) -> int:
    return len({(site, int(number / per_interval)) for number, site in enumerate(order)})


@pytest.mark.parametrize("name", STREAMS)
def test_few_intervals_are_counted_exactly(name: str) -> None:
    stream = stream_named(name, 15, 2_000, seed=1)
    assert flush_messages(stream, 2_000, 200) == direct_count(stream.order(2_000), 200)
    assert flush_messages(stream, 2_000, 150) == direct_count(stream.order(2_000), 150)


@pytest.mark.parametrize("name", ["uniform", "zipf", "single"])
def test_many_intervals_are_estimated(name: str) -> None:
    stream = stream_named(name, 15, 20_000, seed=1)
    for per_interval in (5, 40):
        assert flush_messages(stream, 20_000, per_interval) == pytest.approx(
            direct_count(stream.order(20_000), per_interval), rel=0.15
        )


def test_intervals_shorter_than_the_time_between_events() -> None:
    stream = stream_named("uniform", 5, 100, seed=1)
    assert flush_messages(stream, 100, 0.01) == 100
