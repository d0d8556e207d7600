"""Leave before jump (SPEC 7): leave each site after a long silence, just before it would speak."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from countless.lab.arena.game import Adversary, Move, Until, View
from countless.randomness import SeededRandom

# In steps, by scheme; elsewhere one step, which on a lattice is the longest silence there is.
SILENCE = {"hyz": 2.3, "blocks": 1.3}


@dataclass(frozen=True)
class LeaveBeforeJump(Adversary):
    """Idea: the mirror image of stop after jump. A site that has long been silent is underestimated. Feed
    a site; if the answer moves, start again; once it has stood still for `silence` steps, leave the site
    there.

    On a lattice the first jump gives the offset away, and the next one is a step later to the event. In
    `hyz` the silence has no limit, only a price: so with small alpha, where rounds have reports to spare,
    this side is the worse one. Without a step (`deterministic`) every site is left one event before it
    must speak.

    Sees: the answers. Must beat: `lattice`, and likewise `hyz`.
    """

    name: ClassVar[str] = "leave-before-jump"
    must_beat: ClassVar[str] = "lattice"
    ranges: ClassVar[dict[str, tuple[float, float]]] = {"silence": (0.3, 4.0)}

    silence: float | None = None

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        """Site after site."""
        silence = SILENCE.get(view.scheme, 1.0) if self.silence is None else self.silence
        while True:
            for site in range(view.sites):
                while True:
                    yield Move(site, self._wanted(view, site, silence), Until.ANSWER)
                    if not view.changed or not view.step:
                        break

    @staticmethod
    def _wanted(view: View, site: int, silence: float) -> int:
        if view.step:
            return max(1, round(silence * view.step) - 1)
        # The deterministic pace is public: the longest silence a report at this count can stand for.
        return max(1, int(view.counts[site] * 2 * view.alpha / (1 - view.alpha)))
