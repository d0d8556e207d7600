"""The only source of randomness in the core: an argument, never an import.

In production it is the operating system, because the guarantees rest on offsets that cannot be guessed; in tests and
simulations it is a seed. Both implementations are in `countless.randomness`.
"""

from typing import Protocol


class RandomSource(Protocol):
    """A source of independent random numbers."""

    def randbelow(self, n: int) -> int:
        """Uniform on 0 .. n-1, for any n >= 1."""

    def geometric(self, step: int) -> int:
        """The number of trials, each successful with probability 1/step, up to and including the first success."""

    def random(self) -> float:
        """Uniform on the multiples of 2^-53 in [0, 1)."""

    def spawn(self, *labels: str | int) -> "RandomSource":
        """An independent source for one purpose; the same labels give the same source again."""
