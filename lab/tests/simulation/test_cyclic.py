"""Cyclic streams: reading by event and by site gives the same sequence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.errors import InvalidParameter
from countless.randomness import SeededRandom
from countless_lab.simulation.cyclic import CyclicStream

SITES = 4
runs = st.lists(st.tuples(st.integers(0, SITES - 1), st.integers(1, 5)), min_size=1, max_size=12)


@given(runs=runs, seed=st.none() | st.integers(0, 1000))
def test_queries_by_site_agree_with_the_order(runs: list[tuple[int, int]], seed: int | None) -> None:
    stream = CyclicStream(SITES, runs, None if seed is None else SeededRandom(seed))
    counts = [0] * SITES
    for number, site in enumerate(stream.order(3 * stream.length + 2), 1):
        counts[site] += 1
        assert stream.when(site, counts[site]) == number
        assert [stream.count(other, number) for other in range(SITES)] == counts


@given(runs=runs, seed=st.integers(0, 1000))
def test_every_cycle_gives_each_site_its_share(runs: list[tuple[int, int]], seed: int) -> None:
    stream = CyclicStream(SITES, runs, SeededRandom(seed))
    for site in range(SITES):
        share = sum(size for owner, size in runs if owner == site)
        assert stream.count(site, 5 * stream.length) == 5 * share


def test_site_without_events() -> None:
    stream = CyclicStream(2, [(1, 3)])
    assert stream.when(0, 1) is None
    assert stream.count(0, 10**12) == 0


def test_very_large_event_numbers() -> None:
    stream = CyclicStream(3, [(0, 1), (1, 2), (2, 4)], SeededRandom(1))
    number = stream.when(1, 10**30)
    assert number is not None
    assert (stream.site_at(number), stream.count(1, number)) == (1, 10**30)


def test_empty_pattern_is_refused() -> None:
    with pytest.raises(InvalidParameter):
        CyclicStream(2, [])
