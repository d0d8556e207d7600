"""How long to wait before the next attempt: longer each time, and never in step with anybody else."""

from countless.core.dice import Dice
from countless.randomness import SystemDice

FIRST, LONGEST = 0.05, 15.0  # seconds, before jitter
_DICE = SystemDice()


class Backoff:
    """Pauses that double, with jitter: a coordinator that comes back is not met by everybody at once."""

    def __init__(self, dice: Dice = _DICE) -> None:
        self._dice = dice
        self._pause = FIRST

    def reset(self) -> None:
        """It went well: the next pause is short."""
        self._pause = FIRST

    def next(self) -> float:
        """Seconds to wait now: from half to one and a half times the pause, which then doubles."""
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        return pause * (0.5 + self._dice.fraction())
