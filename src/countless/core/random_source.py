"""The one door through which chance enters the core: an argument, never an import (SPEC section 2).

In production the dice are the operating system's, because the guarantees rest on offsets nobody can guess; in tests
and simulations they come from a seed. Both live in `countless.randomness`; the core knows only this protocol.
"""

from typing import Protocol


class RandomSource(Protocol):
    """A source of independent random numbers."""

    def randbelow(self, n: int) -> int:
        """Uniform on 0 .. n-1, for any n >= 1."""

    def randbelow_many(self, n: int, times: int) -> list[int]:
        """The same so many times, which may be quicker than one at a time."""

    def geometric(self, step: int) -> int:
        """How many coins of probability 1/step are flipped up to and including the first head (at least 1)."""

    def random(self) -> float:
        """Uniform on [0, 1)."""

    def spawn(self, *labels: str | int) -> "RandomSource":
        """An independent source for one purpose; the same labels give the same source again."""
