"""The controls: traffic that ignores what it sees."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, View


def _burst(view: View, share: float) -> int:
    """Events of a burst: a fixed share of the mean count of a site, and at least one."""
    return 1 + int(share * view.total / view.sites)


@dataclass(frozen=True)
class RoundRobin(Adversary):
    """Idea: perfectly regular traffic, one site after the other, in bursts that grow with the total.

    Sees: the answers. Must beat: `aligned`, whose sites all report at the same counts, so that regular traffic makes
    all errors grow together.
    """

    name = "round-robin"
    must_beat = "aligned"
    ranges = {"share": (0.0, 0.5)}

    share: float = 0.02

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        while True:
            size = _burst(view, self.share)
            for site in range(view.sites):
                yield Move(site, size)


@dataclass(frozen=True)
class Uniform(Adversary):
    """Idea: memoryless traffic, bursts of random length at random sites.

    Sees: the answers. Must beat: `thrifty`, whose step is ten times what is proved.
    """

    name = "uniform"
    must_beat = "thrifty"
    ranges = {"share": (0.0, 1.0)}

    share: float = 0.05

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        while True:
            yield Move(rng.randbelow(view.sites), rng.geometric(_burst(view, self.share)))


@dataclass(frozen=True)
class Zipf(Adversary):
    """Idea: a few busy sites and many idle ones; site i has weight 1/(i+1)^exponent.

    Sees: the answers. Must beat: `pollster`, which multiplies the count of one site.
    """

    name = "zipf"
    must_beat = "pollster"
    ranges = {"exponent": (0.2, 3.0), "share": (0.0, 1.0)}

    exponent: float = 1.0
    share: float = 0.05

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        weights = list(accumulate((i + 1) ** -self.exponent for i in range(view.sites)))
        while True:
            site = bisect_right(weights, rng.random() * weights[-1])
            yield Move(min(site, view.sites - 1), rng.geometric(_burst(view, self.share)))


@dataclass(frozen=True)
class SingleSite(Adversary):
    """Idea: all sites but the last stay at zero.

    Sees: the answers. Must beat: `clipping`, a lattice without negative points, which counts idle sites as half a step.
    """

    name = "single-site"
    must_beat = "clipping"

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        while True:
            yield Move(view.sites - 1, 1 + view.total)
