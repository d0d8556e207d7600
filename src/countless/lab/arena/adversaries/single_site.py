"""Single site: a control (SPEC 7). Everything happens in one place, and nobody else ever speaks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from countless.lab.arena.game import Adversary, Move, View
from countless.randomness import SeededRandom


@dataclass(frozen=True)
class SingleSite(Adversary):
    """Idea: all sites but the last stay at zero for ever. Ignores what it sees.

    Sees: the answers. Must beat: `clipping`, a lattice that refuses negative points and so counts idle
    sites as half busy.
    """

    name: ClassVar[str] = "single-site"
    must_beat: ClassVar[str] = "clipping"

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        """The last one."""
        while True:
            yield Move(view.sites - 1, 1 + view.total)
