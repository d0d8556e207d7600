"""The events of a race: at sites, at virtual seconds, drawn from a seed or read from a file.

An event may increment several counters, like a request that is counted by route, by code and in all. Under a quota
events are offers: each contestant's own answer decides which are admitted.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import NamedTuple

from countless.errors import InvalidParameter
from countless_lab.simulation.traces import read_trace

ONE = (0,)
COUNTERS = 50  # of the workload of that name
AT_ONCE = 5  # of them, incremented by one event
BURSTS = 20


class Event(NamedTuple):
    """One increment of each of these counters, at this site and virtual second."""

    time: float
    site: int
    counters: tuple[int, ...]


class Workload:
    """A list of events in compact form: traces have millions."""

    def __init__(self, name: str, sites: int, seconds: float, events: Iterable[Event], *, quota: float = 0.0) -> None:
        self.name = name
        self.sites = sites
        self.seconds = seconds
        self.quota = quota  # events a second that may be admitted; 0: all
        self._times, self._owners = array("d"), array("q")
        self._counters: dict[int, tuple[int, ...]] = {}  # of events with others than the first counter
        for number, event in enumerate(events):
            self._times.append(event.time)
            self._owners.append(event.site)
            if event.counters != ONE:
                self._counters[number] = event.counters
        self.counters = 1 + max((max(incremented) for incremented in self._counters.values()), default=0)

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[Event]:
        incremented = self._counters
        for number, (time, site) in enumerate(zip(self._times, self._owners, strict=True)):
            yield Event(time, site, incremented.get(number, ONE) if incremented else ONE)


def steady(sites: int, events: int, seconds: float, seed: int) -> Workload:
    """The same rate at every site and at every time."""
    return Workload("steady", sites, seconds, _uniform(Random(seed), sites, events, seconds))  # noqa: S311


def bursty(sites: int, events: int, seconds: float, seed: int) -> Workload:
    """Nine events of ten come in bursts of a second, each at a tenth of the sites."""
    rng = Random(seed)  # noqa: S311
    background = list(_uniform(rng, sites, events // 10, seconds))
    burst_events = []
    for _ in range(BURSTS):
        begin = rng.uniform(0, seconds - 1)
        busy = [rng.randrange(sites) for _ in range(max(1, sites // 10))]
        size = (events - len(background)) // BURSTS
        burst_events += [Event(begin + rng.random(), rng.choice(busy), ONE) for _ in range(size)]
    return Workload("bursty", sites, seconds, sorted(background + burst_events))


def idle(sites: int, events: int, seconds: float, seed: int) -> Workload:
    """A hundredth of the events."""
    return Workload("idle", sites, seconds, _uniform(Random(seed), sites, max(1, events // 100), seconds))  # noqa: S311


def feedback(sites: int, events: int, seconds: float, seed: int) -> Workload:
    """Offers at three times the rate of a quota; an offer is admitted while the answer is below the quota."""
    offers = _uniform(Random(seed), sites, events, seconds)  # noqa: S311
    return Workload("feedback", sites, seconds, offers, quota=events / seconds / 3)


def counters(sites: int, events: int, seconds: float, seed: int) -> Workload:
    """Fifty counters at a fifth of the sites, five incremented at once: little traffic for each."""
    rng = Random(seed)  # noqa: S311
    few = max(1, sites // 5)
    spread = [event._replace(counters=_some(rng)) for event in _uniform(rng, few, max(1, events // 15), seconds)]
    return Workload("counters", few, seconds, spread)


WORKLOADS: dict[str, Callable[[int, int, float, int], Workload]] = {
    "steady": steady,
    "bursty": bursty,
    "idle": idle,
    "feedback": feedback,
    "counters": counters,
}


def recorded(path: Path, most_events: int | None = None, faster: float = 1.0) -> Workload:
    """A trace (CSV with `t,site`), with its clock `faster` times as fast.

    If all its times are whole seconds, the events of each second are spread evenly over it.
    """
    if not 0 < faster < float("inf"):
        raise InvalidParameter("faster", faster, "a positive number")
    if most_events is not None and most_events < 1:
        raise InvalidParameter("events", most_events, "at least 1")
    trace = read_trace(path)
    length = trace.length if most_events is None else min(most_events, trace.length)
    sites, last, ticks = 0, 0.0, True
    for time, site in trace.timed_events(length):
        sites, last, ticks = max(sites, site + 1), time, ticks and time.is_integer()
    timed = _spread(trace.timed_events(length)) if ticks else trace.timed_events(length)
    name = path.parent.name if path.name.startswith("events.") else path.name.partition(".")[0]
    events = (Event(time / faster, site, ONE) for time, site in timed)
    return Workload(name, sites, (last // 1 + 1) / faster, events)


def _spread(timed: Iterator[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    for time, together in groupby(timed, itemgetter(0)):
        sites = [site for _, site in together]
        for place, site in enumerate(sites):
            yield time + place / len(sites), site


def _uniform(rng: Random, sites: int, events: int, seconds: float) -> Iterator[Event]:
    for time in sorted(rng.uniform(0, seconds) for _ in range(events)):
        yield Event(time, rng.randrange(sites), ONE)


def _some(rng: Random) -> tuple[int, ...]:
    # The last counter is always among them, so that every workload has all fifty.
    return (*sorted(rng.sample(range(COUNTERS - 1), AT_ONCE - 1)), COUNTERS - 1)
