"""How long to wait before the next attempt: longer each time, and never in step with anybody else."""

from countless.core.random_source import RandomSource
from countless.randomness import SystemRandom

FIRST, AWAITED, LONGEST = 0.05, 0.5, 15.0  # seconds, before jitter
_DICE = SystemRandom()


class Backoff:
    """Pauses that double, with jitter: a coordinator that comes back is not met by everybody at once."""

    def __init__(self, rng: RandomSource = _DICE) -> None:
        self._rng = rng
        self._pause = FIRST

    def reset(self) -> None:
        """It went well: the next pause is short."""
        self._pause = FIRST

    def next(self, awaited: bool = False) -> float:
        """Seconds to wait now: half to one and a half times the pause, which then doubles; less if somebody waits."""
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        return (min(pause, AWAITED) if awaited else pause) * (0.5 + self._rng.random())
