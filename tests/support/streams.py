"""Streams that do not react to the answers: pairs (site, how many events), from a seed."""

from collections.abc import Callable, Iterator
from functools import lru_cache

from countless.randomness import SeededRandom

Stream = Iterator[tuple[int, int]]


def uniform(sites: int, events: int, rng: SeededRandom) -> Stream:
    """Each event at a site chosen at random."""
    for _ in range(events):
        yield rng.randbelow(sites), 1


def round_robin(sites: int, events: int, rng: SeededRandom) -> Stream:
    """One site after the other."""
    for event in range(events):
        yield event % sites, 1


def zipf(sites: int, events: int, rng: SeededRandom) -> Stream:
    """A few busy sites and many idle ones: site i with weight 1/(i+1), by rejection."""
    for _ in range(events):
        while rng.randbelow((site := rng.randbelow(sites)) + 1):
            pass
        yield site, 1


def single_site(sites: int, events: int, rng: SeededRandom) -> Stream:
    """All at the last site."""
    for _ in range(events):
        yield sites - 1, 1


def bursts(sites: int, events: int, rng: SeededRandom) -> Stream:
    """Batches of very different sizes: `add(n)` must equal n events."""
    left = events
    while left > 0:
        size = min(left, rng.geometric(2 ** rng.randbelow(9)))
        left -= size
        yield rng.randbelow(sites), size


def hot_spot(sites: int, events: int, rng: SeededRandom) -> Stream:
    """Nine events of ten go to a site that changes as time goes on."""
    for event in range(events):
        hot = event * 7 * sites // events % sites
        yield (hot if rng.randbelow(10) else rng.randbelow(sites)), 1


STREAMS: dict[str, Callable[[int, int, SeededRandom], Stream]] = {
    stream.__name__: stream for stream in (uniform, round_robin, zipf, single_site, bursts, hot_spot)
}


def stream_named(name: str, sites: int, events: int, seed: int) -> Stream:
    return iter(_recorded(name, sites, events, seed))


@lru_cache(maxsize=16)
def _recorded(name: str, sites: int, events: int, seed: int) -> list[tuple[int, int]]:
    """Every scheme gets the same streams, and some take longer to draw than to count."""
    return list(STREAMS[name](sites, events, SeededRandom(seed).spawn("stream", name)))
