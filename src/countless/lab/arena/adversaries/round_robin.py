"""Round robin: a control (SPEC 7). One site after the other, in bursts that grow with the total."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from countless.lab.arena.game import Adversary, Move, View
from countless.randomness import SeededRandom


def burst(view: View, share: float) -> int:
    """A burst that is a fixed share of one site's fair part of the total, and at least one event."""
    return 1 + int(share * view.total / view.sites)


@dataclass(frozen=True)
class RoundRobin(Adversary):
    """Idea: perfectly regular traffic. Ignores what it sees.

    Sees: the answers. Must beat: `aligned`, whose sites all speak at the same counts, so that regular
    traffic makes all errors grow together.
    """

    name: ClassVar[str] = "round-robin"
    must_beat: ClassVar[str] = "aligned"
    ranges: ClassVar[dict[str, tuple[float, float]]] = {"share": (0.0, 0.5)}

    share: float = 0.02

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        """0, 1, 2, ..., 0, 1, 2, ..."""
        while True:
            size = burst(view, self.share)
            for site in range(view.sites):
                yield Move(site, size)
