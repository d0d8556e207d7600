"""Stop after jump (SPEC 7): feed a site until the answer moves, then leave it for good."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from countless.lab.arena.game import Adversary, Move, Until, View
from countless.randomness import SeededRandom

OBLIVIOUS = ("hyz", "blocks", "lattice", "hyz-classical")


@dataclass(frozen=True)
class StopAfterJump(Adversary):
    """Idea: at the very event at which a site reports, it is overestimated: by a step in `hyz`, by half a
    step in `lattice`, by the rest of its block in `blocks`. Leave it there, do the same with the next, and
    all errors add up, where the proof for oblivious traffic expects them to cancel.

    Against `blocks` a jump is worth more the earlier in its block it comes. Blocks start where the round
    found the site, and the adversary knows its own inputs: a site whose jump came in the later part of its
    block is fed on, to the next jump (`early` is the part of the block that will do; 1 takes every jump).
    With c for it, a site ends 1 - c/2 steps too high on average and takes 1/c - 1 + c/2 steps of traffic,
    during which the allowed error grows too: at 1,024 sites and alpha = 1 % that is best near 0.4.

    A round's share of delta falls from round to round, and with it the step that is allowed: so the attack is
    strongest early, but not before a step is worth something. Against these three it lies low, feeding one site,
    until a round begins whose step is `calm` events or, once a quarter of the game is over, any round begins.

    Sees: the answers. Must beat: `lattice`, and likewise `hyz` and `blocks`.
    """

    name: ClassVar[str] = "stop-after-jump"
    must_beat: ClassVar[str] = "lattice"
    ranges: ClassVar[dict[str, tuple[float, float]]] = {"early": (0.1, 1.0), "calm": (0, 40)}

    early: float | None = None
    calm: int | None = None

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        """Site after site, pass after pass: every later round finds the attack already under way."""
        early = (0.4 if view.scheme == "blocks" else 1.0) if self.early is None else self.early
        calm = (20 if view.scheme in OBLIVIOUS else 0) if self.calm is None else self.calm
        round = view.round
        while calm and self._too_early(view, round, calm):
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
    def _too_early(view: View, round: int, calm: int) -> bool:
        if 2 * view.total >= view.horizon:
            return False
        return view.round == round or (view.step < calm and 4 * view.total < view.horizon)
