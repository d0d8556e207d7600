"""Pauses between attempts to connect."""

from countless.core.random_source import RandomSource

FIRST_S, MAX_WHILE_WAITED_FOR_S, MAX_S = 0.05, 0.5, 10 / 3  # before jitter, which makes half as much of it, up to 5 s


class Backoff:
    """Pauses that double, with jitter: not all clients return to a restarted coordinator in the same moment."""

    def __init__(self, rng: RandomSource) -> None:
        self._rng = rng
        self._pause = FIRST_S

    def reset(self) -> None:
        self._pause = FIRST_S

    def next(self, waited_for: bool = False) -> float:
        """Seconds to wait now; fewer while the program waits for the connection."""
        pause, self._pause = self._pause, min(2 * self._pause, MAX_S)
        return (min(pause, MAX_WHILE_WAITED_FOR_S) if waited_for else pause) * (0.5 + self._rng.random())
