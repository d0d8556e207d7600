"""Control: all events at one site."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from countless.lab.arena.game import Adversary, Move, View
from countless.randomness import SeededRandom


@dataclass(frozen=True)
class SingleSite(Adversary):
    """Idea: all sites but the last stay at zero. Ignores what it sees.

    Sees: the answers. Must beat: `clipping`, a lattice without negative points, which counts idle sites as half a step.
    """

    name: ClassVar[str] = "single-site"
    must_beat: ClassVar[str] = "clipping"

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        while True:
            yield Move(view.sites - 1, 1 + view.total)
