"""Control: bursts of random length at random sites."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from countless.lab.arena.adversaries.round_robin import burst
from countless.lab.arena.game import Adversary, Move, View
from countless.randomness import SeededRandom


@dataclass(frozen=True)
class Uniform(Adversary):
    """Idea: memoryless traffic. Ignores what it sees.

    Sees: the answers. Must beat: `thrifty`, whose step is ten times what is proved.
    """

    name: ClassVar[str] = "uniform"
    must_beat: ClassVar[str] = "thrifty"
    ranges: ClassVar[dict[str, tuple[float, float]]] = {"share": (0.0, 1.0)}

    share: float = 0.05

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        while True:
            yield Move(rng.randbelow(view.sites), rng.geometric(burst(view, self.share)))
