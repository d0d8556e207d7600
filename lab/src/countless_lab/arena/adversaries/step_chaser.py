"""Knows the step of every site, and drives those where it helps most."""

from collections.abc import Iterator
from dataclasses import dataclass

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, Until, View

LARGEST, SMALLEST, ALTERNATE = "largest", "smallest", "alternate"


@dataclass(frozen=True)
class StepChaser(Adversary):
    """Idea: a scheme that follows the traffic can be led to steps as unequal as one likes. Make the traffic uneven; in
    the next round expose the sites with the largest steps, each by feeding it until the estimate changes, and then feed
    each of them its own step less one event: unless their lattices were moved, no message is sent, and each site is
    underestimated by half of a large step.

    `drive` says which sites: those with the largest steps, those with the smallest, or both in turn, round by round:
    then the steps of a round always suit the traffic of the one before. `share` is the part of the sites.

    Sees: the answers, and the steps. Must beat: `unmoved`, which has the steps of `dithered` and keeps exposed lattices
    in force.
    """

    name = "step-chaser"
    must_beat = "unmoved"
    ranges = {"share": (0.1, 1.0)}

    drive: str = LARGEST
    share: float = 0.9

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        largest = self.drive != SMALLEST
        while True:
            round = view.round
            steps = sorted(range(view.sites), key=view.step_of, reverse=largest)
            if view.step_of(steps[0]) == view.step_of(steps[-1]):
                yield from self._uneven(view, round)
                continue
            chosen = steps[: max(1, int(self.share * view.sites))]
            while view.round == round:
                for site in chosen:
                    yield Move(site, 1 + view.total, Until.ANSWER)
                    if view.round != round:
                        break
                else:
                    for site in chosen:
                        yield Move(site, max(1, view.step_of(site) - 1))
            largest = largest != (self.drive == ALTERNATE)

    @staticmethod
    def _uneven(view: View, round: int) -> Iterator[Move]:
        """Site i has 1/(i+1) of the traffic of site 0, until a round begins."""
        events = 1 + view.total // 20
        for site in range(view.sites):
            yield Move(site, 1 + events // (site + 1))
            if view.round != round:
                return
