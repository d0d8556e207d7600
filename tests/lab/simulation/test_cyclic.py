"""Patterns repeated for ever: reading forwards and backwards gives the same sequence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.errors import InvalidParameter
from countless.lab.simulation.cyclic import CyclicStream
from countless.randomness import SeededRandom

SITES = 4
runs = st.lists(st.tuples(st.integers(0, SITES - 1), st.integers(1, 5)), min_size=1, max_size=12)


@given(runs=runs, seed=st.none() | st.integers(0, 1000))
def test_backwards_is_forwards(runs: list[tuple[int, int]], seed: int | None) -> None:
    laps = CyclicStream(SITES, runs, None if seed is None else SeededRandom(seed))
    counts = [0] * SITES
    for number, site in enumerate(laps.order(3 * laps.length + 2), 1):
        counts[site] += 1
        assert laps.when(site, counts[site]) == number
        assert [laps.count(other, number) for other in range(SITES)] == counts


@given(runs=runs, seed=st.integers(0, 1000))
def test_every_lap_brings_everybody_its_share(runs: list[tuple[int, int]], seed: int) -> None:
    laps = CyclicStream(SITES, runs, SeededRandom(seed))
    for site in range(SITES):
        share = sum(size for owner, size in runs if owner == site)
        assert laps.count(site, 5 * laps.length) == 5 * share


def test_a_site_without_events() -> None:
    laps = CyclicStream(2, [(1, 3)])
    assert laps.when(0, 1) is None
    assert laps.count(0, 10**12) == 0


def test_numbers_far_out() -> None:
    laps = CyclicStream(3, [(0, 1), (1, 2), (2, 4)], SeededRandom(1))
    number = laps.when(1, 10**30)
    assert number is not None
    assert (laps.site_at(number), laps.count(1, number)) == (1, 10**30)


def test_an_empty_pattern_is_refused() -> None:
    with pytest.raises(InvalidParameter):
        CyclicStream(2, [])
