"""The streams have the distributions of their names, and can be read by site."""

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.errors import InvalidParameter, UnknownName
from countless_lab.simulation.registry import STREAMS, stream_named


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=15)
@given(sites=st.integers(1, 12), events=st.integers(1, 1500), seed=st.integers(0, 99))
def test_queries_by_site_agree_with_the_order(name: str, sites: int, events: int, seed: int) -> None:
    stream = stream_named(name, sites, events, seed)
    counts = [0] * sites
    for number, site in enumerate(stream.order(events), 1):
        counts[site] += 1
        assert stream.when(site, counts[site]) == number
        assert stream.count(site, number - 1) == counts[site] - 1
        assert stream.count(site, number) == counts[site]
    assert [stream.count(site, events) for site in range(sites)] == counts


@pytest.mark.parametrize("name", STREAMS)
def test_seed_determines_the_stream(name: str) -> None:
    def first(seed: int) -> list[int]:
        return list(stream_named(name, 50, 3000, seed).order(500))

    assert first(1) == first(1)
    assert first(1) != first(2)


def shares(name: str, sites: int, events: int) -> list[float]:
    stream = stream_named(name, sites, events, 1)
    return [stream.count(site, events) / events for site in range(sites)]


def test_uniform_shares() -> None:
    assert shares("uniform", 20, 10**9) == pytest.approx([1 / 20] * 20)


def test_zipf_shares() -> None:
    found = shares("zipf", 100, 10**9)
    assert [found[0] / share for share in found[:5]] == pytest.approx([1, 2, 3, 4, 5], rel=0.02)
    assert found[0] / found[99] == pytest.approx(100)


def test_single_has_one_site() -> None:
    assert sorted(shares("single", 10, 10**6)) == [0] * 9 + [1]


def test_bursts_have_short_and_long_runs() -> None:
    stream = stream_named("bursts", 20, 100_000, 1)
    sizes = [len(list(run)) for _, run in groupby(stream.order(30_000))]
    assert min(sizes) == 1
    assert max(sizes) > 1000


def test_every_site_is_a_hot_spot() -> None:
    sites, events = 20, 70_000
    order = list(stream_named("hot_spots", sites, events, 1).order(events))
    window = events // (7 * sites)
    hottest = [Counter(order[at : at + window]).most_common(1)[0] for at in range(0, events, window)]
    assert len({site for site, _ in hottest}) == sites
    assert sum(count for _, count in hottest) > 0.5 * events


def test_joining_sites_have_no_events_before_they_join() -> None:
    stream = stream_named("joining", 10, 6_000, 1)
    assert (stream.fleet, stream.sites) == (5, 10)
    assert list(stream.arrivals) == [(1000, 5), (2000, 6), (3000, 7), (4000, 8), (5000, 9)]
    order = list(stream.order(6_000))
    for number, site in stream.arrivals:
        assert site not in order[:number]
        assert site in order[number : number + 20]


def test_invalid_input_is_refused() -> None:
    with pytest.raises(UnknownName, match="one of: uniform"):
        stream_named("nonsense", 3, 10, 1)
    with pytest.raises(InvalidParameter, match="sites"):
        stream_named("uniform", 0, 10, 1)
    with pytest.raises(InvalidParameter, match="events"):
        stream_named("uniform", 3, 0, 1)
