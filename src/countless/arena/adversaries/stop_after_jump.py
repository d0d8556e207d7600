"""Stop after jump (SPEC 7): feed a site until the answer moves, then leave it for good."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from countless.arena.game import Adversary, Move, Until, View
from countless.randomness import SeededDice


@dataclass(frozen=True)
class StopAfterJump(Adversary):
    """Idea: at the very event at which a site reports, it is overestimated: by a step in `hyz`, by half a step in
    `lattice`, by the rest of its block in `blocks`. Leave it there, do the same with the next, and all errors add up,
    where the proof for oblivious traffic expects them to cancel.

    Against `blocks` the jump is worth more the earlier in its block it comes, so a site whose jump came late is fed on, to
    the next one (`early`, in steps since its last jump or since the round began; 0 takes every jump).

    Sees: the answers. Must beat: `lattice`, and likewise `hyz` and `blocks`.
    """

    name: ClassVar[str] = "stop-after-jump"
    strawman: ClassVar[str] = "lattice"
    ranges: ClassVar[dict[str, tuple[float, float]]] = {"early": (0.0, 2.0)}

    early: float | None = None

    def moves(self, view: View, dice: SeededDice) -> Iterator[Move]:
        """Site after site, pass after pass: a new round finds the attack already under way."""
        early = (0.45 if view.scheme == "blocks" else 0.0) if self.early is None else self.early
        since, round = [0] * view.sites, view.round
        while True:
            for site in range(view.sites):
                while True:
                    yield Move(site, 1 + view.total, Until.ANSWER)
                    if view.round != round:
                        since, round = [0] * view.sites, view.round
                    since[site] += view.taken
                    if not view.changed:
                        break
                    worth_leaving = not early or since[site] <= early * view.step
                    since[site] = 0
                    if worth_leaving:
                        break
