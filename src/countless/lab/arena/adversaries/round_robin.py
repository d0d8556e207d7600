"""Control: one site after the other, in bursts that grow with the total."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from countless.lab.arena.game import Adversary, Move, View
from countless.randomness import SeededRandom


def burst(view: View, share: float) -> int:
    """Events of a burst: a fixed share of the mean count of a site, and at least one."""
    return 1 + int(share * view.total / view.sites)


@dataclass(frozen=True)
class RoundRobin(Adversary):
    """Idea: perfectly regular traffic. Ignores what it sees.

    Sees: the answers. Must beat: `aligned`, whose sites all report at the same counts, so that regular traffic makes
    all errors grow together.
    """

    name: ClassVar[str] = "round-robin"
    must_beat: ClassVar[str] = "aligned"
    ranges: ClassVar[dict[str, tuple[float, float]]] = {"share": (0.0, 0.5)}

    share: float = 0.02

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        while True:
            size = burst(view, self.share)
            for site in range(view.sites):
                yield Move(site, size)
