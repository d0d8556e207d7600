"""Searches for the calibrations. Written here because planning imports the standard library only.

No guarantee rests on how well they search: what they find is either valid for every argument (`golden_section_min`),
evaluated before it is returned (`safe_root`), or used only to compare and to choose (`approx_root`, `nelder_mead`).
"""

from collections.abc import Callable
from math import ceil, exp, frexp, inf, ldexp, log, sqrt


def round_up(value: float) -> float:
    """Up to 16 significant bits, so that the printed value is the value used."""
    shift = 16 - frexp(value)[1]
    return ldexp(ceil(ldexp(value, shift)), -shift)


def golden_section_min(function: Callable[[float], float], low: float, high: float, precision: float = 1e-4) -> float:
    """About where a function that falls and then rises is least: golden section on a logarithmic scale."""
    ratio = (sqrt(5) - 1) / 2
    a, b = log(low), log(high)
    x, y = b - ratio * (b - a), a + ratio * (b - a)
    at_x, at_y = function(exp(x)), function(exp(y))
    while b - a > precision:
        if at_x < at_y:
            b, y, at_y = y, x, at_x
            x = b - ratio * (b - a)
            at_x = function(exp(x))
        else:
            a, x, at_x = x, y, at_y
            y = a + ratio * (b - a)
            at_y = function(exp(y))
    return exp((a + b) / 2)


def nelder_mead(cost: Callable[[list[float]], float], first: list[float], size: list[float], steps: int) -> list[float]:
    """Nelder and Mead's downhill simplex with a fixed number of steps, which bounds the planning time."""
    corners = [(cost(first), first)]
    for axis, shift in enumerate(size):
        corner = [x + shift * (axis == other) for other, x in enumerate(first)]
        corners.append((cost(corner), corner))

    def along(worst: list[float], centre: list[float], by: float) -> tuple[float, list[float]]:
        point = [c + by * (c - w) for c, w in zip(centre, worst, strict=True)]
        return cost(point), point

    for _ in range(steps):
        corners.sort(key=lambda corner: corner[0])
        worst = corners[-1]
        centre = [sum(axis) / len(first) for axis in zip(*(point for _, point in corners[:-1]), strict=True)]
        reflected = along(worst[1], centre, 1.0)
        if reflected[0] < corners[0][0]:
            corners[-1] = min(reflected, along(worst[1], centre, 2.0))
        elif reflected[0] < corners[-2][0]:
            corners[-1] = reflected
        else:
            inside = along(worst[1], centre, -0.5)
            if inside[0] < worst[0]:
                corners[-1] = inside
            else:
                best = corners[0][1]
                halves = [[(x + b) / 2 for x, b in zip(point, best, strict=True)] for _, point in corners[1:]]
                corners[1:] = [(cost(point), point) for point in halves]
    return min(corners)[1]


def approx_root(probability: Callable[[float], float], budget: float, safe: float) -> float:
    """About the least x in [0, safe] with probability(x) <= budget: for comparisons, not for a guarantee.

    sqrt(-ln P) is almost a straight line in x, so two evaluations and a secant come within a part in 1000.
    """
    target = sqrt(-log(budget))
    first = 0.95 * safe
    at_first = _root(probability(first))
    if 0.8 * target < at_first < 1.25 * target:
        second = first * (target / at_first if abs(target / at_first - 1) > 0.01 else 0.99)
        at_second = _root(probability(second))
        if at_first != at_second < inf:
            third = first + (target - at_first) * (second - first) / (at_second - at_first)
            if abs(third - second) < 0.03 * safe:
                return min(third, safe)
    return safe_root(probability, budget, safe, 1e-3 * safe)  # not a straight line: short rounds, tiny steps


def safe_root(probability: Callable[[float], float], budget: float, safe: float, precision: float) -> float:
    """A value within `precision` of the least x in [0, safe] with probability(x) <= budget.

    `probability` must fall. The caller guarantees that `safe` is safe; every other value returned was evaluated.
    """
    target = sqrt(-log(budget))
    unsafe, at_unsafe, at_safe, side = 0.0, 0.0, 1.05 * target, 0.4
    while safe - unsafe > precision:
        share = (target - at_unsafe) / (at_safe - at_unsafe) if at_safe > at_unsafe else 0.5
        # Guess a little to the side of the root where the bracket is still wide, so that both its ends move.
        guess = unsafe + (safe - unsafe) * min(max(share, 0.0), 1.0) + side * precision
        guess = min(max(guess, unsafe + 0.3 * precision), safe - 0.3 * precision)
        value = probability(guess)
        if value <= budget:
            safe, at_safe, side = guess, min(_root(value), 2 * target), -0.4
        else:
            unsafe, at_unsafe, side = guess, _root(value), 0.4
    return safe


def _root(probability: float) -> float:
    return sqrt(max(0.0, -log(probability))) if probability > 0 else inf
