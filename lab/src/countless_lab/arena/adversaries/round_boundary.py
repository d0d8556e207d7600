"""Attacks the change from one round to the next."""

from collections.abc import Iterator
from dataclasses import dataclass

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, Until, View


@dataclass(frozen=True)
class RoundBoundary(Adversary):
    """Idea: a synchronisation removes all errors, if it is done right. Keep every site overestimated, so that the
    round ends with its largest error; then, when every site has just received its new trigger, give one site a batch
    of many steps.

    Sees: the answers. Must beat: `drifting`, which starts a round from its own estimate instead of the exact total.
    """

    name = "round-boundary"
    must_beat = "drifting"
    ranges = {"batch": (0.0, 40.0)}

    batch: float = 3.0

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        site, round = 0, view.round
        while True:
            site = (site + 1) % view.sites
            yield Move(site, 1 + view.total, Until.ANSWER)
            if view.round != round:
                round = view.round
                yield Move(rng.randbelow(view.sites), 1 + int(self.batch * view.step))
