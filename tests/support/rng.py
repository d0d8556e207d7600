"""Dice that fall as a test says."""

from collections.abc import Iterable


class ScriptedDice:
    """Draws come from a list; the test fails if more are drawn than it wrote down."""

    def __init__(self, draws: Iterable[int] = ()) -> None:
        self.draws = list(draws)

    def _next(self) -> int:
        if not self.draws:
            raise AssertionError("more draws than the script has")
        return self.draws.pop(0)

    def randbelow(self, n: int) -> int:
        value = self._next()
        if not 0 <= value < n:
            raise AssertionError(f"the script says {value} where the draw is below {n}")
        return value

    def randbelow_many(self, n: int, times: int) -> list[int]:
        return [self.randbelow(n) for _ in range(times)]

    def geometric(self, step: int) -> int:
        return self._next()

    def random(self) -> float:
        return self._next() / 1000

    def spawn(self, *labels: str | int) -> "ScriptedDice":
        return self


NO_DICE = ScriptedDice()
