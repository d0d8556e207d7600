"""The streams by name, each from a seed (SPEC section 6). All but `independent` can be skipped through.

| name | what happens |
|---|---|
| uniform | every site as busy as every other |
| zipf | site i is 1/(i+1) as busy as site 0 |
| single | everything at one site |
| bursts | sites speak in runs whose sizes range from one event to a site's whole share |
| hot_spots | nine events of ten at one site; every site has its turn, seven times over |
| joining | uniform, while half of the sites arrive one after the other |
"""

from collections.abc import Callable, Iterator

from countless.errors import InvalidParameter, UnknownName
from countless.lab.simulation.cyclic import CyclicStream
from countless.lab.simulation.growing_fleet import GrowingFleet, shuffled
from countless.lab.simulation.stream import Stream
from countless.randomness import SeededRandom

MOST_SITES = 10_000_000
_ZIPF_GRAIN = 2  # events of the rarest site in a lap: larger is closer to Zipf, and more memory
_RUNS = 8  # bursts for each site in a lap
_PASSES = 7  # how often each site is the hot spot
_PIECES = 5  # runs into which one such time is cut


def uniform(sites: int, events: int, rng: SeededRandom) -> Stream:
    """Every lap brings one event to every site."""
    return CyclicStream(sites, [(site, 1) for site in shuffled(range(sites), rng)], rng)


def zipf(sites: int, events: int, rng: SeededRandom) -> Stream:
    """Every lap brings site i so many events as its weight 1/(i+1), rounded, is worth; in random order."""
    slots = [site for site in range(sites) for _ in range(round(_ZIPF_GRAIN * sites / (site + 1)))]
    return CyclicStream(sites, [(site, 1) for site in shuffled(slots, rng)], rng)


def single(sites: int, events: int, rng: SeededRandom) -> Stream:
    """Only one site has anything to count."""
    return CyclicStream(sites, [(rng.randbelow(sites), 1)])


def bursts(sites: int, events: int, rng: SeededRandom) -> Stream:
    """Runs at random sites; a run's mean size is a random power of two up to events / sites."""
    sizes = max(2, (events // sites).bit_length())
    runs = [(rng.randbelow(sites), rng.geometric(2 ** rng.randbelow(sizes))) for _ in range(_RUNS * sites)]
    return CyclicStream(sites, runs, rng)


def hot_spots(sites: int, events: int, rng: SeededRandom) -> Stream:
    """Nine events of ten at the hot spot, one at a random site, in runs; the hot spot wanders through all sites."""
    grain = max(1, events // (_PASSES * sites * _PIECES * 10))
    runs = []
    for hot in shuffled(range(sites), rng):
        for _ in range(_PIECES):
            runs += [(hot, 9 * grain), (rng.randbelow(sites), grain)]
    return CyclicStream(sites, runs, rng)


STREAMS: dict[str, Callable[[int, int, SeededRandom], Stream]] = {
    "uniform": uniform,
    "zipf": zipf,
    "single": single,
    "bursts": bursts,
    "hot_spots": hot_spots,
    "joining": GrowingFleet,
}


def stream_named(name: str, sites: int, events: int, seed: int) -> Stream:
    """A stream for so many sites. It never ends; `events` only tells it how long it will be looked at."""
    if name not in STREAMS:
        raise UnknownName("stream", name, STREAMS)
    if isinstance(sites, bool) or not isinstance(sites, int) or not 1 <= sites <= MOST_SITES:
        raise InvalidParameter("sites", sites, f"an integer from 1 to {MOST_SITES:,}")
    if isinstance(events, bool) or not isinstance(events, int) or events < 1:
        raise InvalidParameter("events", events, "an integer of at least 1")
    return STREAMS[name](sites, events, SeededRandom(seed).spawn("stream", name))


def independent(sites: int, events: int, seed: int) -> Iterator[int]:
    """Each event at a site chosen at random, independently of all others: for the reference engine, event by event."""
    rng = SeededRandom(seed).spawn("stream", "independent")
    return (rng.randbelow(sites) for _ in range(events))
