"""Draws of the successes among n independent trials, in about the same time for every n.

Rejection under an envelope for log-concave laws (Devroye, "A simple generator for discrete log-concave distributions",
1987). With P(m) the largest probability:

- P(m+d) <= P(m) exp(1 - d P(m)). For if P(m+d) = P(m) exp(-c), then P(m+i) >= P(m) exp(-c i/d) for i up to d, and their
  sum, which is at most 1, is at least d P(m) (1 - exp(-c))/c >= d P(m)/(1 + c). The same holds for P(m-d).
- P(m) >= 1/sqrt(12 v + 1), v the variance: the sum with a uniform on ±1/2 has variance v + 1/12 and no density above
  P(m), and the least variance with such a density is that of a uniform law, 1/(12 P(m)^2).

So in blocks of `width` >= 1/P(m) places on either side of m, probabilities are at most 1, 1, 1/2, 1/4, ... of P(m).

Probabilities are compared in decimal arithmetic, to within a part in 10^30, where floats are too close to tell;
everything else is in integers.
"""

from decimal import Context, Decimal, localcontext
from math import factorial, isqrt, lgamma, log

from countless.core.random_source import RandomSource

_UNIT = 1 << 100  # of the uniform number that is compared with a probability
_DIGITS = 40  # of logarithms, after the point
_FLOAT_ERROR = 1e-13  # relative, of logarithms of factorials in floats: hundreds of times what it is
_HALF_LOG_TWO_PI = Decimal("0.918938533204672741780329736405617639861397473637783")
# Stirling's series ln n! = (n + 1/2) ln n - n + ln(2 pi)/2 + sum of 1/(part n^power). The next term bounds the error:
# it is below 10^-37 from _MIN_STIRLING on.
_STIRLING = ((12, 1), (-360, 3), (1260, 5), (-1680, 7), (1188, 9), (Decimal(-360360) / 691, 11), (156, 13))
_MIN_STIRLING = 256


def binomial(n: int, step: int, rng: RandomSource) -> int:
    """The number of successes among `n` trials, each with probability 1/step."""
    if step == 1 or n == 0:
        return n
    mode = (n + 1) // step
    width = isqrt(12 * n * (step - 1) // step**2 + 2) + 1
    while True:
        block = 0
        if rng.randbelow(3):
            block = 1
            while rng.randbelow(2):
                block += 1
        distance = block * width + rng.randbelow(width)
        found = mode + distance if rng.randbelow(2) else mode - 1 - distance
        halvings = max(0, block - 1)
        if 0 <= found <= n and _is_below(rng.randbelow(_UNIT), found, mode, n, step, halvings):
            return found


def _is_below(uniform: int, found: int, mode: int, n: int, step: int, halvings: int) -> bool:
    """True if uniform/_UNIT < P(found)/P(mode) * 2^halvings. Floats decide it, unless they are too close to tell."""
    exponent = _rough_weight(found, n, step) - _rough_weight(mode, n, step) + halvings * log(2)
    error = _FLOAT_ERROR * (1 + lgamma(n + 1) + max(found, mode) * log(step))
    if uniform >> 50 and abs(excess := exponent - log(uniform / _UNIT)) > error:
        return excess > 0
    with localcontext(Context(prec=len(str(n)) + _DIGITS, traps=[])):
        share = (log_weight(found, n, step) - log_weight(mode, n, step)).exp()
        return bool(uniform < share * _UNIT * 2**halvings)


def log_weight(successes: int, n: int, step: int) -> Decimal:
    """The logarithm of the probability of so many successes, less what does not depend on them."""
    return -_log_factorial(successes) - _log_factorial(n - successes) - successes * Decimal(step - 1).ln()


def _rough_weight(successes: int, n: int, step: int) -> float:
    return -lgamma(successes + 1) - lgamma(n - successes + 1) - successes * log(step - 1)


def _log_factorial(n: int) -> Decimal:
    if n < _MIN_STIRLING:
        return Decimal(factorial(n)).ln()
    x = Decimal(n)
    series = sum((1 / (part * x**power) for part, power in _STIRLING), _HALF_LOG_TWO_PI)
    return (x + Decimal("0.5")) * x.ln() - x + series
