"""Has no memory: the last answer decides which sites get the traffic."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, sqrt

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, Until, View


@dataclass(frozen=True)
class Autoscaler(Adversary):
    """Idea: whenever the published total has grown by a little, traffic moves on to the next machines. Only the last
    answer decides: earlier answers, the events so far and the round are not used. Still, traffic leaves a site only
    when the answer changes, and with a single site in use that is at a report of this site: it is left at the moment
    at which it is overestimated most. So stop after jump needs no memory.

    `growth` is by how much the answer grows until traffic moves on, as a multiple of alpha / sqrt(sites); about one
    report is best. `group` is the number of sites in use, one of them at random for each event: the larger it is, the
    less often the site that is left is the one that has just reported.

    Sees: the answers, and uses the last one. Must beat: `lattice`, and likewise `hyz` and `blocks`.
    """

    name = "autoscaler"
    must_beat = "lattice"
    ranges = {"growth": (0.05, 4.0), "group": (1, 16)}

    growth: float = 0.5
    group: int = 1

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        growth = self.growth * view.alpha / sqrt(view.sites)
        while True:
            first = int(log(max(1.0, view.estimate)) / growth)
            if self.group == 1:
                yield Move(first % view.sites, view.horizon, Until.ANSWER)
            else:
                yield Move((first + rng.randbelow(self.group)) % view.sites)
