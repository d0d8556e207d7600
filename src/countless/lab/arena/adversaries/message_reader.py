"""Message reader (SPEC 8): an adversary that also reads the message counter."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from countless.lab.arena.game import Adversary, Move, Until, View
from countless.randomness import SeededRandom


@dataclass(frozen=True)
class MessageReader(Adversary):
    """Idea: stop after jump, without waiting for the answer. A site is fed until the message counter
    moves: it has just reported, so it is overestimated, however well the answer hides it. Leave it. This
    is why message counts, report times and per-site counts are for operators only (SPEC section 8).

    Sees: everything. Must beat: `lattice` and `dithered`. Cannot beat `sampled`, whose next coin no
    message gives away, nor `deterministic`.
    """

    name: ClassVar[str] = "message-reader"
    sees: ClassVar[str] = "everything"
    must_beat: ClassVar[str] = "dithered"
    ranges: ClassVar[dict[str, tuple[float, float]]] = {"patience": (0.1, 4.0)}

    patience: float = 4.0  # give up on a site after so many silent steps

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        """Site after site."""
        while True:
            for site in range(view.sites):
                limit = self.patience * view.step if view.step else view.total
                yield Move(site, 1 + int(limit), Until.MESSAGE)
