"""Integer Laplace noise, drawn exactly: no floating point between the random source and the noise.

The law is the discrete (two-sided geometric) one, P(x) proportional to exp(-|x|/scale) on the integers. Two
sources behind one interface: OpenDP in production, and an exact sampler over any `RandomSource` for seeded runs and
for machines without OpenDP. Both are exact; a test compares them. Floating-point Laplace noise leaks
through its low bits (Mironov, CCS 2012), which is why neither source uses it.

The sampler is that of Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS
2020, Algorithms 1 and 2. OpenDP is imported only when `OpenDPNoise` is used.
"""

from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from math import inf, nextafter
from typing import Any, Protocol

from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter, MissingExtra
from countless.randomness import SystemRandom

# OpenDP saturates at 64 bits; at this scale a draw reaches them with probability below exp(-2^22).
MAX_SCALE = 2**40


class Noise(Protocol):
    """A source of independent integer Laplace variables."""

    def laplace(self, scale: Fraction) -> int:
        """One draw with P(x) proportional to exp(-|x|/scale); scale 0 means no noise."""


def check_scale(scale: Fraction) -> Fraction:
    """The scale as an exact fraction; raises InvalidParameter if no source can draw it."""
    if not isinstance(scale, Fraction | int):
        raise InvalidParameter("scale", scale, "a Fraction or an integer, so that the noise is exact")
    if not 0 <= scale <= MAX_SCALE:
        raise InvalidParameter("scale", scale, f"between 0 and {MAX_SCALE}")
    return Fraction(scale)


def bernoulli_exp(numerator: int, denominator: int, rng: RandomSource) -> bool:
    """True with probability exp(-numerator/denominator), exactly, for a ratio in [0, 1].

    Coins of probability ratio/1, ratio/2, ratio/3, ... are flipped until the first tail; the number of
    flips is odd with probability 1 - ratio + ratio^2/2 - ... = exp(-ratio).
    """
    flips = 1
    while rng.randbelow(denominator * flips) < numerator:
        flips += 1
    return flips % 2 == 1


def discrete_laplace(scale: Fraction, rng: RandomSource) -> int:
    """One integer x with P(x) proportional to exp(-|x|/scale), by integer arithmetic only.

    Formal guarantees: the law is exact if the source is; the running time is geometric, with a constant mean.

    >>> from countless.randomness import SeededRandom
    >>> rng = SeededRandom(1)
    >>> [discrete_laplace(Fraction(5, 2), rng) for _ in range(8)]
    [-2, -3, 2, -2, -1, 0, 0, -10]
    """
    exact = check_scale(scale)
    if exact == 0:
        return 0
    wide, narrow = exact.numerator, exact.denominator
    while True:
        # `rest + wide * whole` is geometric with ratio exp(-1/wide): its remainder and its quotient are independent.
        rest = rng.randbelow(wide)
        if not bernoulli_exp(rest, wide, rng):
            continue
        whole = 0
        while bernoulli_exp(1, 1, rng):
            whole += 1
        size = (rest + wide * whole) // narrow
        negative = rng.randbelow(2) == 1
        if negative and size == 0:
            continue  # zero would otherwise be drawn twice as often as it should
        return -size if negative else size


class RandomSourceNoise:
    """The exact sampler over a random source: a seeded one, or the system's where OpenDP is not installed."""

    __slots__ = ("_rng",)

    def __init__(self, rng: RandomSource) -> None:
        self._rng = rng

    def laplace(self, scale: Fraction) -> int:
        return discrete_laplace(scale, self._rng)


class OpenDPNoise:
    """Production noise from a maintained library: OpenDP's integer Laplace measurement, applied to zero.

    OpenDP takes its scale as a double. A scale that is no double is rounded *up* to the next one: slightly more
    noise, so never less privacy. The scales of the plans are doubles.
    """

    def __init__(self) -> None:
        if find_spec("opendp") is None:
            raise MissingExtra("opendp", "dp")

    def laplace(self, scale: Fraction) -> int:
        exact = check_scale(scale)
        if exact == 0:
            return 0
        rounded = float(exact)
        if Fraction(rounded) < exact:
            rounded = nextafter(rounded, inf)
        return int(_opendp_laplace(rounded)(0))


@lru_cache(maxsize=64)  # a mechanism uses two scales
def _opendp_laplace(scale: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=scale)


def noise_from(rng: RandomSource) -> Noise:
    """OpenDP's noise where `rng` is the system's and OpenDP is installed, else the exact sampler over `rng`.

    Both have exactly the same law. OpenDP is preferred because it is a reviewed and maintained library; a seeded run
    draws from its seed.
    """
    if isinstance(rng, SystemRandom) and find_spec("opendp") is not None:
        return OpenDPNoise()
    return RandomSourceNoise(rng)
