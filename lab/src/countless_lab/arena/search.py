"""Search for the strongest attack on one scheme among parameters of the other adversaries.

A small evolution strategy: start from every adversary with its default parameters, then mutate one of the best so far
and play it. The result is judged on other seeds than those it was selected on, because the best of many tries is also
the luckiest.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Any

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary
from countless_lab.arena.match import Setting, play
from countless_lab.arena.registry import ADVERSARIES

PARENTS = 4  # how many of the best are mutated
SEARCH_SEEDS = 1 << 32  # seeds of the search start here, far from those that are judged


@dataclass(frozen=True)
class Found:
    """The best adversary on the seeds of the search."""

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
    """The best of `tries` variants, or of those tried within so many seconds; the defaults are always tried.

    `setting.adversary` is ignored. With `tries` alone the result depends on the seed only.
    """
    rng, end = SeededRandom(seed).spawn("search"), clock() + seconds
    ranked: list[tuple[float, int, Adversary]] = []

    def attempt(adversary: Adversary) -> None:
        fitness = _fitness(replace(setting, adversary=adversary), seed + SEARCH_SEEDS, games)
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
    """One parameter redrawn: half the time anywhere in its range, half the time near its value."""
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
    # The sum of both sides: some schemes start a round at the edge of one side, which would hide progress on the other.
    scores = [play(setting, seed + i) for i in range(games)]
    return sum(score.over + score.under for score in scores) / games
