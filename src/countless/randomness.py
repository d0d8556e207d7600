"""Where dice come from: the operating system, or a seed. Nothing else in Countless may draw a random number.

`SystemRandom` is for production. `SeededRandom` replays: a tree of SplitMix64 generators, one for each path of labels,
so that what one site draws never depends on what another one drew, and so that a compiled engine can repeat it word for
word. SplitMix64 passes BigCrush but is no secret: never use it where somebody might guess.

SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

import secrets
from collections.abc import Callable, Sequence
from hashlib import blake2b
from math import log, log1p
from os import urandom
from struct import Struct

from countless.errors import InvalidParameter

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_UNIT = 2.0**-53

# Many words at once, as one long integer: each word has a lane of 128 bits, so that a product does not reach the next.
_LANES = 64
_EACH_ONE = sum(1 << 128 * lane for lane in range(_LANES))
_EACH_STRIDE = sum((lane + 1) * _GOLDEN << 128 * lane for lane in range(_LANES))
_EACH_MASK = _EACH_ONE * _MASK
_take_apart = Struct("<" + _LANES * "Q8x").unpack


def geometric_from_uniform(fraction: float, step: int) -> int:
    """The geometric gap that a uniform `fraction` in [0, 1) stands for: P(gap > g) = (1 - 1/step)^g.

    By inversion in double precision: the gap is that of an exact sampler to within one part in 10^15 and one event,
    and is cut off at 36.7 steps, which an exact one passes with probability 10^-16.
    """
    if step == 1:
        return 1
    return 1 + int(log(1.0 - fraction) / log1p(-1.0 / step))


def _randbelow_many(n: int, times: int, words: Callable[[int], Sequence[int]]) -> list[int]:
    """By rejection, as one at a time; `words` gives some of the 64 random bits that are asked for."""
    shift, values = 64 - (n - 1).bit_length(), list[int]()
    while missing := times - len(values):
        values += [value for word in words(missing) if (value := word >> shift) < n]
    return values


class SystemRandom:
    """The operating system's randomness. It keeps no state, so one instance serves everybody, in every thread."""

    __slots__ = ()

    def randbelow(self, n: int) -> int:
        """Uniform on 0 .. n-1."""
        return secrets.randbelow(n)

    def randbelow_many(self, n: int, times: int) -> list[int]:
        """All from one question to the system, where they fit into 64 bits."""
        if not 0 < n <= _MASK:
            return [secrets.randbelow(n) for _ in range(times)]
        return _randbelow_many(n, times, lambda number: memoryview(secrets.token_bytes(8 * number)).cast("Q"))

    def random(self) -> float:
        """Uniform on the multiples of 2^-53 in [0, 1)."""
        return (int.from_bytes(urandom(7), "little") >> 3) * _UNIT  # secrets.randbits(53), without the calls

    def geometric(self, step: int) -> int:
        """Geometric with mean `step`."""
        return geometric_from_uniform(self.random(), step)

    def spawn(self, *labels: str | int) -> "SystemRandom":
        """Itself: the system's draws are independent already."""
        return self


class SeededRandom:
    """Reproducible dice: the same seed and labels give the same draws, on every machine.

    >>> [SeededRandom(7).spawn("site", 3).randbelow(100) for _ in range(2)]
    [85, 85]
    """

    __slots__ = ("_key", "_state")

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise InvalidParameter("seed", seed, "an integer")
        self._key = b"%d" % seed
        self._state = self._start()

    def _start(self) -> int:
        return int.from_bytes(blake2b(self._key, digest_size=8).digest(), "little")

    def word(self) -> int:
        """The next 64 random bits."""
        self._state = state = (self._state + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def randbelow(self, n: int) -> int:
        """Uniform on 0 .. n-1, by rejection of too large values: exact for every n."""
        if n < 1:
            raise InvalidParameter("n", n, "at least 1")
        bits = (n - 1).bit_length()
        while True:
            if 0 < bits <= 64:  # nearly always, and then one word is enough
                value = self.word() >> (64 - bits)
            else:
                value = self._bits(bits)
            if value < n:
                return value

    def randbelow_many(self, n: int, times: int) -> list[int]:
        """The same as one at a time, in a fifth of the time."""
        if not 1 < n <= _MASK:
            return [self.randbelow(n) for _ in range(times)]
        return _randbelow_many(n, times, self._words)

    def _words(self, number: int) -> Sequence[int]:
        """The next words, at most as many as there are lanes: `word`, all at once."""
        number = min(number, _LANES)
        state = (self._state * _EACH_ONE + _EACH_STRIDE) & _EACH_MASK
        self._state = (self._state + number * _GOLDEN) & _MASK
        state = ((state ^ (state >> 30 & _EACH_MASK)) * 0xBF58476D1CE4E5B9) & _EACH_MASK
        state = ((state ^ (state >> 27 & _EACH_MASK)) * 0x94D049BB133111EB) & _EACH_MASK
        return _take_apart((state ^ (state >> 31)).to_bytes(16 * _LANES, "little"))[:number]

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
        """Geometric with mean `step`."""
        self._state = state = (self._state + _GOLDEN) & _MASK  # `fraction` and `geometric_gap`, without the calls
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        if step == 1:
            return 1
        return 1 + int(log(1.0 - ((state ^ (state >> 31)) >> 11) * _UNIT) / log1p(-1.0 / step))

    def spawn(self, *labels: str | int) -> "SeededRandom":
        """An independent generator for this path of labels; drawing from one never moves another."""
        child = object.__new__(SeededRandom)
        # repr keeps "1" and 1 apart, the separator keeps ("a", "b") and ("ab",) apart.
        child._key = self._key + b"".join(b"/" + repr(label).encode() for label in labels)
        child._state = child._start()
        return child
