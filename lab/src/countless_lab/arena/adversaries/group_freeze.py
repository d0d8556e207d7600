"""Pushes groups of sites by half a step, leaves those that reported early, pushes the others on."""

from collections.abc import Iterator
from dataclasses import dataclass

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, View


@dataclass(frozen=True)
class GroupFreeze(Adversary):
    """Idea: half a step after a synchronisation, a site that has reported is overestimated by a quarter of a step on
    average, and one that has not is underestimated by as much; half a step later it is the reverse. The estimate shows
    in which direction a whole group errs, even where phases hide single reports: stop feeding the groups that err in
    the wanted direction, and push the others on until they do.

    `group` is the number of sites pushed together; by default as many as the last change of the estimate was worth in
    steps, so that one group changes the estimate about half the time.

    Sees: the answers. Must beat: `lattice`.
    """

    name = "group-freeze"
    must_beat = "lattice"
    ranges = {"group": (1, 64), "push": (0.1, 0.9)}

    group: int | None = None
    push: float = 0.5

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        jump = 0.0
        while True:
            first = 0
            while first < view.sites:
                size = self.group or max(1, min(view.sites, int(jump / view.step) if view.step else 1))
                members = range(first, min(view.sites, first + round(size)))
                for _ in range(2):
                    before, pushed = view.estimate, view.total
                    for site in members:
                        yield Move(site, max(1, int(self.push * (view.step or 1 + view.alpha * view.counts[site]))))
                        jump = view.jump or jump
                    if view.estimate - before >= view.total - pushed:
                        break
                first = members.stop
