"""The division of a counter's failure probability among its rounds (docs/understand/guarantee.md).

Round r = 1, 2, ... may fail with probability delta/(r (r+1)): these sum to delta over infinitely many rounds,
so no horizon has to be known. Rounding each down to a power of two keeps the sum below delta and lets many
rounds share one plan; it costs less than ln 2 in a logarithm.
"""

from fractions import Fraction
from functools import lru_cache
from math import frexp, ldexp

from countless.core.parameters import require_integer, require_probability
from countless.errors import InvalidParameter

# Doubles end near 2^-1022. With delta = 2^-30 this is reached after 2^485 rounds.
_MIN_EXPONENT = -1000


@lru_cache(maxsize=1024, typed=True)
def round_eta(delta: float, round: int) -> float:
    """delta/(r (r+1)), rounded down to a power of two.

    >>> round_eta(0.01, 1) == 2.0**-8
    True
    """
    require_probability("delta", delta)
    require_integer("round", round, 1)
    share = Fraction(delta) / (round * (round + 1))
    # With n and d the bit lengths of numerator and denominator, a fraction is above 2^(n-d-1) and below 2^(n-d+1).
    exponent = share.numerator.bit_length() - share.denominator.bit_length()
    if Fraction(2) ** exponent > share:
        exponent -= 1
    if exponent < _MIN_EXPONENT:
        raise InvalidParameter("delta", delta, f"large enough for 2^{_MIN_EXPONENT} or more in round {round:,}")
    return ldexp(1.0, exponent)


def round_down_pow16(eta: float) -> float:
    """`eta` rounded down to a power of 16, for plans that take long to compute and depend on eta only a little.

    >>> round_down_pow16(2.0**-6) == 2.0**-8 == round_down_pow16(2.0**-8)
    True
    """
    exponent = frexp(eta)[1] - 1
    return ldexp(1.0, exponent - exponent % 4)
