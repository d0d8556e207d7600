"""The two sources of random numbers: the operating system, and a seed. Countless has no others.

`SystemRandom` is for production, where the guarantees rest on offsets that cannot be guessed. `SeededRandom` repeats a
run: it is a tree of SplitMix64 generators, one for each path of labels, so the draws of one site do not depend on the
draws of another. SplitMix64 passes BigCrush but can be predicted from its output: never use it where that matters.

SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

import secrets
from collections.abc import Iterable
from hashlib import blake2b
from math import log, log1p

from countless.errors import InvalidParameter

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_UNIT = 2.0**-53
_SYSTEM = secrets.SystemRandom()


def geometric_from_uniform(fraction: float, step: int) -> int:
    """The geometric gap for a uniform `fraction` in [0, 1): P(gap > g) = (1 - 1/step)^g.

    By inversion in double precision: the gap is that of an exact sampler to within one part in 10^15 and one event,
    and is cut off at 36.7 steps, which an exact one passes with probability 10^-16.
    """
    if step == 1:
        return 1
    return 1 + int(log(1.0 - fraction) / log1p(-1.0 / step))


def random_name() -> str:
    """64 bits in hex, that nobody else draws."""
    return secrets.token_hex(8)


class SystemRandom:
    """The operating system's randomness. It keeps no state, so one instance can be shared by all threads."""

    __slots__ = ()

    def randbelow(self, n: int) -> int:
        return secrets.randbelow(n)

    def random(self) -> float:
        return _SYSTEM.random()

    def geometric(self, step: int) -> int:
        return geometric_from_uniform(self.random(), step)

    def spawn(self, *labels: str | int) -> "SystemRandom":
        """Itself: the system's draws are independent already."""
        return self


SYSTEM_RANDOM = SystemRandom()


class SeededRandom:
    """Reproducible random numbers: the same seed and labels give the same draws on every machine.

    >>> [SeededRandom(7).spawn("site", 3).randbelow(100) for _ in range(2)]
    [85, 85]
    """

    __slots__ = ("_key", "_state")

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise InvalidParameter("seed", seed, "an integer")
        self._set_key(b"%d" % seed)

    def _set_key(self, key: bytes) -> None:
        self._key = key
        self._state = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")

    def word(self) -> int:
        """The next 64 random bits."""
        self._state = state = (self._state + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def randbelow(self, n: int) -> int:
        """Uniform on 0 .. n-1, by rejection of larger values: exact for every n."""
        if n < 1:
            raise InvalidParameter("n", n, "at least 1")
        bits = (n - 1).bit_length()
        while True:
            value = self.word() >> (64 - bits) if 0 < bits <= 64 else self._bits(bits)
            if value < n:
                return value

    def _bits(self, missing: int) -> int:
        value = 0
        while missing > 0:
            take = min(missing, 64)
            value = (value << take) | (self.word() >> (64 - take))
            missing -= take
        return value

    def random(self) -> float:
        """Uniform on the multiples of 2^-53 in [0, 1)."""
        return (self.word() >> 11) * _UNIT

    def geometric(self, step: int) -> int:
        return geometric_from_uniform((self.word() >> 11) * _UNIT, step)

    def shuffled(self, items: Iterable[int]) -> list[int]:
        order = list(items)
        for last in range(len(order) - 1, 0, -1):
            other = self.randbelow(last + 1)
            order[last], order[other] = order[other], order[last]
        return order

    def spawn(self, *labels: str | int) -> "SeededRandom":
        """An independent generator for this path of labels; drawing from one does not change another."""
        child = object.__new__(SeededRandom)
        # repr distinguishes "1" from 1; the separator distinguishes ("a", "b") from ("ab",).
        child._set_key(self._key + b"".join(b"/" + repr(label).encode() for label in labels))
        return child
