"""A real coordinator with real sites: ordinary traffic, during which the coordinator is killed and started again."""

from collections.abc import Iterator
from time import sleep
from typing import NamedTuple

from countless.randomness import SeededRandom
from countless_lab.demo.fleet import Fleet

_BURSTS = 30

Events = list[tuple[int, int]]  # (site, number of events)


class Step(NamedTuple):
    """An event, with the answer after it, (estimate, lower, upper), if the coordinator is asked."""

    what: str
    total: int
    answer: tuple[float, float, float] | None

    @property
    def held(self) -> bool:
        return self.answer is None or self.answer[1] <= self.total <= self.answer[2]


def play(fleet: Fleet, seed: int, pause_s: float) -> Iterator[Step]:
    """With pauses before the coordinator is killed and before it is started again, to look at the page."""
    rng = SeededRandom(seed).spawn("traffic")

    def step(what: str) -> Step:
        answer = fleet.answer()
        return Step(what, fleet.total, (answer["estimate"], answer["lower"], answer["upper"]))

    def start() -> None:
        sleep(pause_s)
        fleet.start_coordinator()

    for number in range(_BURSTS):
        fleet.add(spread(fleet.sites, int(100 * 1.3**number), rng))
    yield step("The sites have counted:")
    yield Step(f"In {pause_s:g} s the coordinator is killed.", fleet.total, None)
    sleep(pause_s)
    fleet.kill_coordinator()
    yield Step("kill -9. The sites count on; the page says that it is not connected.", fleet.total, None)
    fleet.add(spread(fleet.sites, fleet.total, rng), meanwhile=start)
    yield step("Started again. What the sites have counted meanwhile is there:")


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
