"""Control: a few busy sites and many idle ones."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from countless.lab.arena.adversaries.round_robin import burst
from countless.lab.arena.game import Adversary, Move, View
from countless.randomness import SeededRandom


@dataclass(frozen=True)
class Zipf(Adversary):
    """Idea: site i has weight 1/(i+1)^exponent. Ignores what it sees.

    Sees: the answers. Must beat: `pollster`, which multiplies the count of one site.
    """

    name: ClassVar[str] = "zipf"
    must_beat: ClassVar[str] = "pollster"
    ranges: ClassVar[dict[str, tuple[float, float]]] = {"exponent": (0.2, 3.0), "share": (0.0, 1.0)}

    exponent: float = 1.0
    share: float = 0.05

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        weights = list(accumulate((i + 1) ** -self.exponent for i in range(view.sites)))
        while True:
            site = bisect_right(weights, rng.random() * weights[-1])
            yield Move(min(site, view.sites - 1), rng.geometric(burst(view, self.share)))
