"""The exact law of what a program draws: it runs once for every sequence of draws.

Like `SeededRandom`, a source that is spawned twice with the same labels draws the same numbers twice. So a program
that uses one draw for two purposes gets the law that it has in a seeded run.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import cache
from math import prod
from typing import TypeVar

Weight = Fraction | float
T = TypeVar("T", bound=Hashable)
MAX_RUNS = 20_000
HORIZON = 6


class Again(Exception):
    """The loop of a rejection sampler starts anew."""


class _Draws:
    """The choices of one run: `script` first, then the first of each."""

    def __init__(self, script: Sequence[int]) -> None:
        self.script = script
        self.taken: list[tuple[int, tuple[Weight, ...]]] = []
        self.known: dict[tuple[object, ...], tuple[object, int]] = {}

    def choose(self, weights: tuple[Weight, ...]) -> int:
        at = len(self.taken)
        choice = self.script[at] if at < len(self.script) else _next_possible(weights, -1)
        self.taken.append((choice, weights))
        return choice


@cache
def _equal(n: int) -> tuple[Weight, ...]:
    return (Fraction(1, n),) * n


@cache
def _gaps(step: int, horizon: int) -> tuple[Weight, ...]:
    p = Fraction(1, step)
    return (*(p * (1 - p) ** gap for gap in range(horizon)), (1 - p) ** horizon)


def _next_possible(weights: Sequence[Weight], after: int) -> int:
    return next((number for number in range(after + 1, len(weights)) if weights[number]), len(weights))


class Branching:
    """A random source for `exact_law`; `choose` draws from any finite law."""

    def __init__(self, draws: _Draws, path: tuple[str | int, ...] = ()) -> None:
        self._draws, self._path, self._position = draws, path, 0

    def choose(self, weights: Sequence[Weight]) -> int:
        name = (*self._path, "draw", self._position)
        self._position += 1
        weights = tuple(weights)
        if name not in self._draws.known:
            self._draws.known[name] = weights, self._draws.choose(weights)
        before, choice = self._draws.known[name]
        if before != weights:
            raise AssertionError(f"one draw is used for two purposes: {name}")
        return choice

    def randbelow(self, n: int) -> int:
        return self.choose(_equal(n))

    def geometric(self, step: int) -> int:
        """Gaps beyond the horizon are one value."""
        return 1 + self.choose(_gaps(step, HORIZON))

    def random(self) -> float:
        raise AssertionError("a float has too many values")

    def spawn(self, *labels: str | int) -> "Branching":
        return Branching(self._draws, (*self._path, *labels))


def exact_law(run: Callable[[Branching], T]) -> dict[T, Weight]:
    """The probability of each outcome. Runs that raise `Again` are left out: the others are what a loop ends with."""
    law: defaultdict[T, Weight] = defaultdict(int)
    script: list[int] = []
    for _ in range(MAX_RUNS):
        draws = _Draws(script)
        try:
            outcome = run(Branching(draws))
        except Again:
            pass
        else:
            law[outcome] += prod(weights[choice] for choice, weights in draws.taken)
        taken = draws.taken
        while taken and _next_possible(taken[-1][1], taken[-1][0]) == len(taken[-1][1]):
            taken.pop()
        if not taken:
            whole = sum(law.values())
            return {outcome: weight / whole for outcome, weight in law.items()}
        script = [choice for choice, _ in taken[:-1]] + [_next_possible(taken[-1][1], taken[-1][0])]
    raise AssertionError(f"more than {MAX_RUNS} sequences of draws")
