"""A real coordinator with real sites: ordinary traffic, during which the coordinator is killed and started again."""

from collections.abc import Iterator
from typing import NamedTuple

from countless.demo.fleet import Fleet
from countless.randomness import SeededRandom

_BURSTS = 30

Events = list[tuple[int, int]]  # (site, number of events)


class Step(NamedTuple):
    """What has happened, and the answer after it."""

    what: str
    total: int
    estimate: float
    lower: float
    upper: float

    @property
    def held(self) -> bool:
        return self.lower <= self.total <= self.upper


def play(fleet: Fleet, seed: int) -> Iterator[Step]:
    rng = SeededRandom(seed).spawn("traffic")

    def step(what: str) -> Step:
        answer = fleet.answer()
        return Step(what, fleet.total, answer["estimate"], answer["lower"], answer["upper"])

    for number in range(_BURSTS):
        fleet.add(spread(fleet.sites, int(100 * 1.3**number), rng))
    yield step("the sites have counted")
    fleet.kill_coordinator()
    fleet.add(spread(fleet.sites, fleet.total, rng), meanwhile=fleet.start_coordinator)
    yield step("the coordinator was killed, the sites counted on, and it was started again")


def ordinary(fleet: Fleet, seed: int) -> Iterator[Events]:
    """More traffic, without end."""
    rng = SeededRandom(seed).spawn("more")
    while True:
        yield spread(fleet.sites, max(1, fleet.total // 1000), rng)


def spread(sites: int, events: int, rng: SeededRandom) -> Events:
    """So many events over all sites; some have up to ten times the rate of others."""
    weights = [1 + 9 * rng.random() for _ in range(sites)]
    scale = events / sum(weights)
    found = [(site, n) for site, weight in enumerate(weights) if (n := int(weight * scale + rng.random()))]
    return found or [(0, 1)]  # the counter exists from its first event on
