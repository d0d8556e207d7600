"""Feeds a site until the estimate changes, then leaves it."""

from collections.abc import Iterator
from dataclasses import dataclass

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, Until, View

OBLIVIOUS = ("hyz", "blocks", "lattice", "hyz-classical")


@dataclass(frozen=True)
class StopAfterJump(Adversary):
    """Idea: at the event at which a site reports, it is overestimated: by a step in `hyz`, by half a step in `lattice`,
    by the rest of its block in `blocks`. Leave it there and do the same with the next: all errors add up, where the
    proof for oblivious traffic expects them to cancel.

    Against `blocks` a jump is worth more the earlier in its block it comes. Blocks start where the round found the
    site, and the adversary knows its own inputs: a site whose jump came in the later part of its block is fed on, to
    the next jump (`early` is the part of the block that is accepted; 1 takes every jump). With c for it, a site ends
    1 - c/2 steps too high on average and takes 1/c - 1 + c/2 steps of traffic, during which the allowed error grows
    too: at 1,024 sites and alpha = 1 % that is best near 0.4.

    A round's share of delta, and with it the step that is allowed, decreases from round to round: so the attack is
    strongest early, but not before a step is worth something. Against these schemes it feeds a single site until a
    round begins whose step is at least `min_step` events or, once a quarter of the game is over, until any round
    begins.

    Sees: the answers. Must beat: `lattice`, and likewise `hyz` and `blocks`.
    """

    name = "stop-after-jump"
    must_beat = "lattice"
    ranges = {"early": (0.1, 1.0), "min_step": (0, 40)}

    early: float | None = None
    min_step: int | None = None

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        early = (0.4 if view.scheme == "blocks" else 1.0) if self.early is None else self.early
        min_step = (20 if view.scheme in OBLIVIOUS else 0) if self.min_step is None else self.min_step
        round = view.round
        while min_step and self._too_early(view, round, min_step):
            round = view.round
            yield Move(view.sites - 1, 1 + int(view.alpha * view.total / 4), Until.ANSWER)
        base = list(view.counts)
        while True:
            for site in range(view.sites):
                fed_on = True
                while fed_on:
                    yield Move(site, 1 + view.total, Until.ANSWER)
                    if early >= 1:
                        break
                    if view.round != round:
                        base, round = list(view.counts), view.round
                    inside = (view.counts[site] - base[site] - 1) % (view.step or 1) + 1
                    fed_on = view.changed and inside > early * view.step > 0

    @staticmethod
    def _too_early(view: View, round: int, min_step: int) -> bool:
        if 2 * view.total >= view.horizon:
            return False
        return view.round == round or (view.step < min_step and 4 * view.total < view.horizon)
