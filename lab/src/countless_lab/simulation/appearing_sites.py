"""A fleet that begins with one site: each of the others joins just before its first event."""

from array import array
from collections.abc import Sequence
from itertools import groupby

from countless.randomness import SeededRandom
from countless_lab.simulation.cyclic import CyclicStream

MAX_ORDER = 1 << 22


class AppearingSites(CyclicStream):
    """A recorded order of sites, which are numbered as they appear. After the last event it repeats."""

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__(max(order) + 1, ((site, sum(1 for _ in run)) for site, run in groupby(order)))
        self.fleet = 1
        self.arrivals: list[tuple[int, int]] = []
        for number, site in enumerate(order):
            if site > len(self.arrivals):
                self.arrivals.append((number, site))


def scan_order(sites: int, events: int, rng: SeededRandom) -> "array[int]":
    """New sites come at a constant rate; each other event is at the site of a random earlier one (Yule and Simon).

    So the more a site has counted, the more it gets, and more than half of the sites count a single event.
    """
    length = max(sites, min(events, MAX_ORDER))
    order, seen = array("q"), 0
    for number in range(length):
        if number * sites >= seen * length:
            order.append(seen)
            seen += 1
        else:
            order.append(order[rng.randbelow(number)])
    return order
