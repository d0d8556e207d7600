"""The streams by name, each from a seed.

| name | traffic |
|---|---|
| uniform | the sites in turn: each once in a cycle, in the same random order |
| random | the same rate at every site, in random order |
| zipf | site i has 1/(i+1) of the rate of site 0 |
| single | all events at one site |
| bursts | runs at random sites, from one event to a site's whole share |
| hot_spots | nine events of ten at one site; each site is that site seven times |
| joining | uniform, while half of the sites join one after the other |
| scan | from one site to all of them; most count one event, as in a scan of addresses |
"""

from collections.abc import Callable

from countless.core.parameters import require_integer
from countless.errors import InvalidParameter, UnknownName
from countless.randomness import SeededRandom
from countless_lab.simulation.appearing_sites import AppearingSites, scan_order
from countless_lab.simulation.cyclic import CyclicStream
from countless_lab.simulation.growing_fleet import GrowingFleet
from countless_lab.simulation.stream import Stream

MAX_SITES = 10_000_000
_ZIPF_MIN_EVENTS = 2  # of the rarest site in a cycle: a larger number is closer to Zipf and takes more memory
_RANDOM_TIMES, _MAX_RANDOM_CYCLE = 64, 1 << 22  # events of a site in a cycle; events of a cycle
_BURSTS_PER_SITE = 8  # in a cycle
_HOT_TIMES = 7  # how often each site is the hot spot
_RUNS_PER_HOT_TIME = 5


def uniform(sites: int, events: int, rng: SeededRandom) -> Stream:
    return CyclicStream(sites, [(site, 1) for site in rng.shuffled(range(sites))], rng)


def random(sites: int, events: int, rng: SeededRandom) -> Stream:
    """A cycle has several events of each site."""
    times = max(2, min(_RANDOM_TIMES, _MAX_RANDOM_CYCLE // sites))
    return CyclicStream(sites, [(site, 1) for site in rng.shuffled(list(range(sites)) * times)], rng)


def zipf(sites: int, events: int, rng: SeededRandom) -> Stream:
    """In every cycle, events in proportion to 1/(i+1), rounded, in random order."""
    slots = [site for site in range(sites) for _ in range(round(_ZIPF_MIN_EVENTS * sites / (site + 1)))]
    return CyclicStream(sites, [(site, 1) for site in rng.shuffled(slots)], rng)


def single(sites: int, events: int, rng: SeededRandom) -> Stream:
    return CyclicStream(sites, [(rng.randbelow(sites), 1)])


def bursts(sites: int, events: int, rng: SeededRandom) -> Stream:
    """The mean size of a run is a random power of two up to events / sites."""
    sizes = max(2, (events // sites).bit_length())
    number = _BURSTS_PER_SITE * sites
    runs = [(rng.randbelow(sites), rng.geometric(2 ** rng.randbelow(sizes))) for _ in range(number)]
    return CyclicStream(sites, runs, rng)


def hot_spots(sites: int, events: int, rng: SeededRandom) -> Stream:
    """Runs of nine parts at the hot spot and one part at a random site."""
    part = max(1, events // (_HOT_TIMES * sites * _RUNS_PER_HOT_TIME * 10))
    runs = []
    for hot in rng.shuffled(range(sites)):
        for _ in range(_RUNS_PER_HOT_TIME):
            runs += [(hot, 9 * part), (rng.randbelow(sites), part)]
    return CyclicStream(sites, runs, rng)


def scan(sites: int, events: int, rng: SeededRandom) -> Stream:
    return AppearingSites(scan_order(sites, events, rng))


STREAMS: dict[str, Callable[[int, int, SeededRandom], Stream]] = {
    "uniform": uniform,
    "random": random,
    "zipf": zipf,
    "single": single,
    "bursts": bursts,
    "hot_spots": hot_spots,
    "joining": GrowingFleet,
    "scan": scan,
}


def stream_named(name: str, sites: int, events: int, seed: int) -> Stream:
    """A stream without end; `events` is how much of it will be read, which sets the length of its runs."""
    if name not in STREAMS:
        raise UnknownName("stream", name, STREAMS)
    if isinstance(sites, bool) or not isinstance(sites, int) or not 1 <= sites <= MAX_SITES:
        raise InvalidParameter("sites", sites, f"an integer from 1 to {MAX_SITES:,}")
    require_integer("events", events, 1)
    return STREAMS[name](sites, events, SeededRandom(seed).spawn("stream", name))
