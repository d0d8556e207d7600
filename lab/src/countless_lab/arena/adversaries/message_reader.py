"""Reads the message counter."""

from collections.abc import Iterator
from dataclasses import dataclass

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, Until, View


@dataclass(frozen=True)
class MessageReader(Adversary):
    """Idea: stop after jump without waiting for the estimate. A site is fed until the message counter changes: it has
    just reported, so it is overestimated, however well the estimate hides it. Leave it. This is why message counts,
    report times and per-site counts are for operators only (docs/understand/threat-model.md).

    Sees: everything. Must beat: `lattice` and `dithered`. Cannot beat `sampled`, where no message reveals anything
    about the next sample, nor `deterministic`.
    """

    name = "message-reader"
    sees = "everything"
    must_beat = "dithered"
    ranges = {"limit": (0.1, 4.0)}

    limit: float = 4.0  # leave a site after so many steps without a message

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        while True:
            for site in range(view.sites):
                events = self.limit * view.step if view.step else view.total
                yield Move(site, 1 + int(events), Until.MESSAGE)
