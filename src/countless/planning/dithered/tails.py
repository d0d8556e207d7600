"""Tails of a sum of `sites` independent uniforms on ±1/2: how far the lattice estimate can be off.

A site's lattice error, in steps, is uniform on `step` points of (-1/2, 1/2): the mean of a continuous uniform over each
of `step` cells. So a convex function of the sum has at most the mean it has for continuous uniforms. For those, with
K(s) = ln( sinh(s/2) / (s/2) ) and any s > c >= 0,

    integral over u > 0 of exp(c u) Pr[X >= x + u] du  <=  exp(sites K(s) - s x) / (s - c) * min(1, 1/(s sqrt(2 pi D)))

with D = K''(s) (sites - 3/2): the first factor is Chernoff's, the second says that the tilted sum has no density above
a normal one's (design/proofs/dithered.md, section 3.7). The best s is near the one with sites K'(s) = x. Everything
here is parametrised by that s (the *tilt*): the exponent, the slack x and the slope are explicit functions of it.

Rounding: the slack returned is inflated, so that it is never below the true root.
"""

from collections.abc import Callable
from math import exp, inf, isfinite, log, log1p, pi, sinh, tanh

# Relative inflation of every slack: far above the rounding of the sums here, far below what costs a message.
_SAFETY = 1e-9
# Slacks above this fraction of sites/2 are taken to be sites/2, which X cannot reach: the bound is then certain.
_NEARLY_CERTAIN = 0.995
_MAX_TILT = 1e6


def cumulant(tilt: float) -> tuple[float, float]:
    """K(s) and K'(s) for one continuous uniform on ±1/2."""
    if tilt < 0.02:  # the closed forms cancel here; the next terms of the series are below 1e-17
        square = tilt * tilt
        return (
            square / 24 - square * square / 2880 + square**3 / 181440,
            tilt / 12 - tilt * square / 720 + tilt * square * square / 30240,
        )
    return tilt / 2 + log1p(-exp(-tilt)) - log(tilt), 0.5 / tanh(tilt / 2) - 1 / tilt


def variance(tilt: float) -> float:
    """K''(s), the variance of one tilted uniform, rounded down."""
    if tilt < 0.1:  # the closed form cancels here; the series alternates, so this is below, by 2e-8 at most
        return 1 / 12 - tilt**2 / 240
    return 1 / tilt**2 - (0.25 / sinh(tilt / 2) ** 2 if tilt < 100 else 0.0)


def exponent(sites: int, tilt: float, slope: float = 0.0) -> float:
    """-ln of the integral's bound at the slack of `tilt`; the weight of u grows like exp(slope u)."""
    if tilt <= slope:
        return -inf
    value, mean = cumulant(tilt)
    return sites * (tilt * mean - value) + log(tilt - slope) + _density_gain(sites, tilt)


def _density_gain(sites: int, tilt: float) -> float:
    """Nats by which the density of the tilted sum improves on Chernoff."""
    return max(0.0, log(tilt) + 0.5 * log(2 * pi * variance(tilt) * (sites - 1.5))) if sites > 1 else 0.0


def slack(sites: int, slope: float, nats: Callable[[float], float], start: float = 1.0) -> tuple[float, float]:
    """Smallest x with exponent(x) >= nats(x), and its tilt, to start the next search from.

    `nats` must not increase with x: it is what a union bound over transcripts needs. Where the result comes close to
    sites/2 it is sites/2 itself, which the sum never reaches.
    """

    def missing(tilt: float) -> float:
        return nats(sites * cumulant(tilt)[1]) - exponent(sites, tilt, slope)

    certain = sites / 2
    low, high = 0.98 * start, 1.02 * start  # from one phase to the next the tilt moves little
    if missing(low) <= 0:
        low = 0.0
    factor = 1.1
    while missing(high) > 0:
        low, high, factor = high, factor * high, 2.0
        if high > _MAX_TILT or sites * cumulant(low)[1] > _NEARLY_CERTAIN * certain:
            return certain, start
    low, high = _shrink(missing, low, high)
    reached = sites * cumulant(high)[1] * (1 + _SAFETY)
    return (certain, start) if reached > _NEARLY_CERTAIN * certain else (reached, high)


def _shrink(missing: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """A bracket of the root of a decreasing function, positive at low, not positive at high (Illinois method)."""
    at_low = missing(low) if low > 0 else inf
    at_high = missing(high)
    for _ in range(60):
        if high - low <= 1e-10 * high:
            break
        middle = (low + high) / 2
        if isfinite(at_low) and isfinite(at_high):
            secant = (low * at_high - high * at_low) / (at_high - at_low)
            # stay off the ends, so that both of them keep moving
            middle = min(max(secant, low + 1e-3 * (high - low)), high - 1e-3 * (high - low))
        value = missing(middle)
        if value > 0:
            low, at_low, at_high = middle, value, at_high / 2
        else:
            high, at_high, at_low = middle, value, at_low / 2
    return low, high


def quick_slack(sites: int, nats: float, tilt: float) -> tuple[float, float]:
    """About the x whose exponent is `nats`, and its tilt: for the search only."""
    nats = max(nats, 0.5)
    for _ in range(40):
        over = exponent(sites, tilt) - nats
        if abs(over) < 1e-3:
            break
        tilt = max(tilt / 3, min(3 * tilt, tilt - over / (sites * tilt * variance(tilt) + 2 / tilt)))
        if tilt > _MAX_TILT:
            return sites / 2, 1.0
    return sites * cumulant(tilt)[1], tilt
