"""Leaves each site just before its next report is due."""

from collections.abc import Iterator
from dataclasses import dataclass

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, Until, View

# Steps without a jump, by scheme; elsewhere one step, the longest gap between two reports on a lattice.
GAPS = {"hyz": 2.3, "blocks": 1.3}


@dataclass(frozen=True)
class LeaveBeforeJump(Adversary):
    """Idea: the opposite of stop after jump. A site that has not reported for long is underestimated. Feed a site; if
    the estimate changes, start again; once it has not changed for `gap` steps, leave the site there.

    On a lattice the first jump reveals the offset, and the next report is exactly one step later. In `hyz` the gap
    between reports has no limit, but long gaps are rare: with small alpha, where rounds have many reports, this
    direction is the worse one. Without a step (`deterministic`) every site is left one event before it must report.

    Sees: the answers. Must beat: `lattice`, and likewise `hyz`.
    """

    name = "leave-before-jump"
    must_beat = "lattice"
    ranges = {"gap": (0.3, 4.0)}

    gap: float | None = None

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        gap = GAPS.get(view.scheme, 1.0) if self.gap is None else self.gap
        while True:
            for site in range(view.sites):
                while True:
                    yield Move(site, self._wanted(view, site, gap), Until.ANSWER)
                    if not view.changed or not view.step:
                        break

    @staticmethod
    def _wanted(view: View, site: int, gap: float) -> int:
        if view.step:
            return max(1, round(gap * view.step) - 1)
        # The deterministic trigger is public: the longest gap after a report at this count.
        return max(1, int(view.counts[site] * 2 * view.alpha / (1 - view.alpha)))
