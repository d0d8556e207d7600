"""Random numbers that a test writes down."""

from collections.abc import Iterable


class ScriptedRandom:
    """Draws come from a list; a draw beyond its end is an AssertionError."""

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

    def geometric(self, step: int) -> int:
        return self._next()

    def random(self) -> float:
        return self._next() / 1000

    def spawn(self, *labels: str | int) -> "ScriptedRandom":
        return self


NO_RANDOM = ScriptedRandom()
