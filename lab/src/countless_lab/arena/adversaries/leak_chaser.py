"""Exploits the one site that each phase exposes."""

from collections.abc import Iterator
from dataclasses import dataclass

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, Until, View


@dataclass(frozen=True)
class LeakChaser(Adversary):
    """Idea: when the estimate changes, the count of the site that was just fed is exactly at a point of its lattice.
    Unless its offset is redrawn, its next report is exactly one step away. Collect such sites, then feed each of them
    a step less one event: no message is sent while the total grows by almost a step for every site collected.

    `collect` is the share of the sites to expose first. A new round makes the collection worthless.

    Sees: the answers. Must beat: `unredrawn`, which has secret thresholds but keeps exposed offsets in force.
    """

    name = "leak-chaser"
    must_beat = "unredrawn"
    ranges = {"collect": (0.02, 1.0)}

    collect: float = 0.9

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        site = 0
        while True:
            exposed: dict[int, None] = {}
            round = view.round
            while len(exposed) < max(1, self.collect * view.sites):
                site = (site + 1) % view.sites
                yield Move(site, 1 + view.total, Until.ANSWER)
                if view.round != round:
                    exposed, round = {}, view.round
                exposed[site] = None
            for site in exposed:
                yield Move(site, max(1, (view.step or 1 + int(view.alpha * view.counts[site])) - 1))
