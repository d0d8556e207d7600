"""How messages grow with sites, alpha and the total, measured on regular traffic, with lines fitted to logarithms.

What a plan is expected to cost is in `countless.schemes.compare`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from countless.lab.arena.adversaries.round_robin import RoundRobin
from countless.lab.arena.match import Setting, game_of

START, END = 10**6, 2 * 10**7  # after the exact start of every scheme at the sizes used; three e-folds
_TRAFFIC = RoundRobin(share=0.1)


@dataclass(frozen=True)
class Fit:
    """A straight line through points, and the share of the variance that it explains."""

    slope: float
    intercept: float
    explained: float


def line(xs: Sequence[float], ys: Sequence[float]) -> Fit:
    """Least squares."""
    n = len(xs)
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    intercept = mean_y - slope * mean_x
    left = sum((y - slope * x - intercept) ** 2 for x, y in zip(xs, ys, strict=True))
    spread_y = sum((y - mean_y) ** 2 for y in ys)
    return Fit(slope, intercept, 1 - left / spread_y if spread_y else 1.0)


def power(xs: Sequence[float], ys: Sequence[float]) -> Fit:
    """The exponent: a line through the logarithms."""
    return line([log(x) for x in xs], [log(y) for y in ys])


def messages_at(
    scheme: str, sites: int, alpha: float, totals: Sequence[int], *, delta: float = 0.05, seed: int = 1
) -> list[int]:
    """Messages sent by the time the total reaches each number of a rising list."""
    game = game_of(Setting(scheme, _TRAFFIC, sites, alpha, delta, totals[-1]), seed)
    found = []
    for total in totals:
        game.play(total)
        found.append(game.score(seed).messages)
    return found


def messages_per_efold(scheme: str, sites: int, alpha: float, *, delta: float = 0.05, seed: int = 1) -> float:
    """Messages while the total grows e-fold, averaged over three e-folds."""
    before, after = messages_at(scheme, sites, alpha, (START, END), delta=delta, seed=seed)
    return (after - before) / log(END / START)
