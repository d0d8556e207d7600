"""Search (SPEC 7): evolve the parameters of the other adversaries against one scheme, for as long as one
is told to.

A small evolution strategy: start from every adversary as it is, then mutate one of the best so far, play
it, keep what is worse for the tracker. What it finds is then played on seeds it was not bred on, so that
its luck is not mistaken for its skill.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Any

from countless.lab.arena.game import Adversary
from countless.lab.arena.match import Setting, play
from countless.lab.arena.registry import ADVERSARIES
from countless.randomness import SeededRandom

PARENTS = 4  # how many of the best may have children
BREEDING_GROUND = 1 << 32  # seeds used for breeding start here: far away from those that are judged


@dataclass(frozen=True)
class Found:
    """The adversary that did best, on the seeds it was bred on."""

    adversary: Adversary
    fitness: float  # mean over games of the worst error / alpha above plus that below
    tried: int


def evolve(
    setting: Setting,
    seed: int,
    *,
    tries: float = inf,
    seconds: float = inf,
    games: int = 2,
    sees: str = "answers",
    clock: Callable[[], float] = monotonic,
) -> Found:
    """The best of `tries` variants, or of what can be tried in so many seconds; the defaults are always
    tried.

    `setting.adversary` is ignored. With `tries` alone the result depends on the seed only.
    """
    rng, end = SeededRandom(seed).spawn("search"), clock() + seconds
    ranked: list[tuple[float, int, Adversary]] = []

    def attempt(adversary: Adversary) -> None:
        fitness = _fitness(replace(setting, adversary=adversary), seed + BREEDING_GROUND, games)
        ranked.append((fitness, -len(ranked), adversary))
        ranked.sort(reverse=True)

    for kind in ADVERSARIES.values():
        if kind.sees == "answers" or sees == "everything":
            attempt(kind())
    while len(ranked) < tries and clock() < end and (tries < inf or seconds < inf):
        parent = ranked[rng.randbelow(min(PARENTS, len(ranked)))][2]
        attempt(mutate(parent, rng))
    fitness, _, best = ranked[0]
    return Found(best, fitness, len(ranked))


def mutate(adversary: Adversary, rng: SeededRandom) -> Adversary:
    """One parameter redrawn: half the time anywhere in its range, half the time near where it is."""
    if not adversary.ranges:
        return adversary
    names = sorted(adversary.ranges)
    name = names[rng.randbelow(len(names))]
    low, high = adversary.ranges[name]
    value = low + (high - low) * rng.random()
    present = getattr(adversary, name)
    if present is not None and rng.randbelow(2):
        value = min(high, max(low, present + (value - (low + high) / 2) / 4))
    whole = isinstance(low, int) and isinstance(high, int)
    changes: dict[str, Any] = {name: round(value) if whole else value}
    return replace(adversary, **changes)  # type: ignore[type-var]  # every adversary is a frozen dataclass


def _fitness(setting: Setting, seed: int, games: int) -> float:
    # Both sides count: some schemes start a round on the very edge of one side, by design, and that would
    # hide all progress on the other.
    scores = [play(setting, seed + i) for i in range(games)]
    return sum(score.over + score.under for score in scores) / games
