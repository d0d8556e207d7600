"""The probability that a Poisson process leaves the strip between two straight lines.

Proofs: design/proofs/sampled.md. N is a Poisson process of rate 1, tau_j the time of its j-th point. Two events before
the m-th point:

    too few    tau_(j+1) > w + u j   for some j = 0 .. m-1
    too many   tau_j < (j - c) / s   for some j = 1 .. m-1

Each has two bounds. The closed form is the exact probability, evaluated with every rounding upwards: the sum
runs over blocks of terms, each replaced by a geometric progression that lies above it. Ville's bound is
weaker, simpler, and holds for coin flips of any bias as well.
"""

from math import erfc, exp, inf, log, log1p, pi, sqrt

from countless.planning.search import golden_section_min

# Block lengths such that all blocks together add about 1 % to the sum: in units of h''^(-1/2), as a fraction
# of j, and as a fraction of i while q_i still falls.
_PER_CURVATURE, _PER_COUNT, _PER_UNIT = 0.4, 0.25, 0.04
# A tail below this fraction of the sum is added as one bound instead of being summed.
_NEGLIGIBLE = 1e-5
# Terms of a Poisson tail summed one by one before a cruder bound takes over.
_SERIES = 4000
# Where Ville's theta is searched: it is near sqrt(2 ln(1/eta) / m).
_MIN_TILT, _MAX_TILT = 1e-8, 20.0
# Covers the rounding of doubles, whose share is below 1e-9 for up to 1e8 reports.
_ROUNDING = 1 + 1e-7


def p_too_few(start: float, slope: float, reports: int) -> float:
    """P(too few) with w = start, u = slope, m = reports, rounded up.

    Ballot theorem: the line is first met at t_j = w + u j, with exactly j points before, with probability
    (w / t_j) Poisson(j; t_j). The sum over j = 0 .. m-1 is exact.
    """
    if start <= 0:
        return 1.0
    total = exp(-start)  # j = 0
    last = reports - 1
    while last >= 1:
        if (rest := _below(last + 1, start, slope)) <= _NEGLIGIBLE * total:
            return _up(total + rest)
        first = max(1, last - _length(last, start, slope))
        at_first, at_last = (-log1p(slope * j / start) for j in (first, last))
        total += _block(first, last, start, slope, at_first, at_last)
        last = first - 1
    return _up(total)


def p_too_many(slack: float, slope: float, reports: int) -> float:
    """P(too many) with c = slack, s = slope, m = reports, rounded up.

    Last-exit decomposition at the times t_j = (j - c)/s when the line passes an integer: either N is last
    above the line just before t_j and then stays below it for the i = m-1-j units that are left, probability
    Poisson(j; t_j) q_i (see `_stays_below`), or N is still above it at the end, t_(m-1).
    """
    if slack < 0:
        return 1.0
    end = reports - 1
    if slack >= end:
        return 0.0
    total = at_least_bound(end, (end - slack) / slope)
    last, intercept, rate = end - 1, -slack / slope, 1 / slope
    while last > slack:
        if (rest := _below(last + 1, intercept, rate)) <= _NEGLIGIBLE * total:
            return _up(total + rest)
        units = end - last
        weight = log(_stays_below(units, slope))  # q_i falls in i: this is its largest value in the block
        flat = slope > 1 and units * (slope - 1) ** 2 > 16  # there q_i is close to its limit, 1 - 1/s
        length = min(_length(last, intercept, rate), int((_PER_COUNT if flat else _PER_UNIT) * units))
        first = max(last - length, int(slack) + 1)
        total += _block(first, last, intercept, rate, weight, weight)
        last = first - 1
    return _up(total)


def too_few_start_ville(slope: float, reports: int, nats: float) -> float:
    """A `start` w with P(too few) <= exp(-nats), for Poisson points and for coins (t = flips * bias) alike.

    exp(-theta R + t (1 - e^-theta)) is a supermartingale. When the line is met, t >= w + u R with R <= m-1,
    so its exponent is at least w y - (m-1) (theta - u y)^+, y = 1 - e^-theta. Every theta > 0 is valid.
    """

    def start(theta: float) -> float:
        y = 1 - exp(-theta)
        return (nats + (reports - 1) * max(0.0, theta - slope * y)) / y

    return start(golden_section_min(start, _MIN_TILT, _MAX_TILT))


def too_many_slack_ville(slope: float, reports: int, nats: float) -> float:
    """A `slack` c with P(too many) <= exp(-nats), for Poisson points and for coins (t = flips * bias) alike.

    exp(theta R - t (e^theta - 1)) is a supermartingale. When R > c + s t with R <= m-1, its exponent is at
    least c max(x, theta) - (m-1) (x - theta)^+, x = (e^theta - 1)/s. And c = m-1 is never exceeded.
    """

    def slack(theta: float) -> float:
        x = (exp(theta) - 1) / slope
        return (nats + (reports - 1) * max(0.0, x - theta)) / max(x, theta)

    return min(slack(golden_section_min(slack, _MIN_TILT, _MAX_TILT)), float(reports - 1))


def divergence(count: float, mean: float) -> float:
    """h = mean - count + count ln(count/mean), so that Poisson(count; mean) ~ exp(-h)/sqrt(2 pi count)."""
    if count == 0:
        return mean
    gap = (mean - count) / count
    return count * (gap - log1p(gap))


def point_bound(count: int, mean: float) -> float:
    """Upper bound on P(Poisson(mean) = count): j! >= sqrt(2 pi j) (j/e)^j e^(1/(12 j + 1)) (Robbins)."""
    if count == 0:
        return exp(-mean)
    return exp(-divergence(count, mean) - 1 / (12 * count + 1)) / sqrt(2 * pi * count)


def at_least_bound(count: int, mean: float) -> float:
    """Upper bound on P(Poisson(mean) >= count): the series, its tail as a geometric one."""
    bound = _at_least_normal(count, mean)
    if count <= 0:
        return bound
    term = total = 1.0
    for j in range(count + 1, count + _SERIES):
        term *= mean / j
        total += term
        if term < 1e-9 * total:
            break
    if mean >= j + 1:  # the terms do not fall yet
        return bound
    rest = term * mean / (j + 1 - mean)
    return min(bound, point_bound(count, mean) * (total + rest))


def at_most_bound(count: int, mean: float) -> float:
    """Upper bound on P(Poisson(mean) <= count): Phi(± sqrt(2 h(count + 1, mean)))."""
    root = sqrt(max(0.0, divergence(count + 1, mean)))
    return 0.5 * erfc(-root if count + 1 > mean else root)


def _at_least_normal(count: int, mean: float) -> float:
    """Upper bound on P(Poisson(mean) >= count): Phi(± sqrt(2 h(count - 1, mean)))."""
    if count <= 0:
        return 1.0
    root = sqrt(max(0.0, divergence(count - 1, mean)))
    return 0.5 * erfc(root if count - 1 > mean else -root)


def _up(total: float) -> float:
    return min(1.0, total * _ROUNDING)


def _stays_below(units: int, slope: float) -> float:
    """q_i = P(N(v) < s v for all 0 < v <= i/s) = E (1 - N(i/s)/i)^+ (Takacs), rounded up.

    The expectation is Poisson(i; i/s) + (1 - 1/s) P(N(i/s) <= i-1): no cancellation when s > 1.
    """
    mean = units / slope
    point = point_bound(units, mean)
    if slope >= 1:
        return min(1.0, point + (1 - 1 / slope) * at_most_bound(units - 1, mean))
    return max(1e-300, point + (1 - 1 / slope) * (1 - _at_least_normal(units, mean)))


def _steepness(count: float, mean: float, rate: float) -> float:
    """dh/dj along mean = intercept + rate j; h is convex in j there."""
    return rate * (mean - count) / mean - log1p((mean - count) / count)


def _length(count: int, intercept: float, rate: float) -> int:
    """The number of terms below `count` that may share its block: h'' = intercept^2 / (j mean^2) along the line."""
    if intercept == 0:
        return 0
    mean = intercept + rate * count
    return int(min(_PER_CURVATURE * sqrt(count) * mean / abs(intercept), _PER_COUNT * count))


def _below(last: int, intercept: float, rate: float) -> float:
    """Bound on the sum over j < last of Poisson(j; intercept + rate j); infinity where it does not fall yet.

    The terms are at most exp(-h), and h, convex, lies above its tangent at `last`: a geometric series.
    """
    mean = intercept + rate * last
    fall = -_steepness(last, mean, rate)
    if fall <= 0:
        return inf
    return exp(-divergence(last, mean)) / (exp(min(fall, 700.0)) - 1)


def _block(first: int, last: int, intercept: float, rate: float, at_first: float, at_last: float) -> float:
    """Bound on the sum over j = first .. last of weight(j) Poisson(j; intercept + rate j).

    `at_first` and `at_last` are ln weight at the ends, ln weight being convex or constant between. ln Poisson
    is at most -h(j) - ln(2 pi j)/2 - 1/(12 j + 1). The first is concave: below its tangent in the middle; the
    second convex: below its chord; the third largest at `last`. So a geometric progression lies above.
    """
    middle, terms = (first + last) / 2, last - first + 1
    mean = intercept + rate * middle
    left, right = at_first - 0.5 * log(2 * pi * first), at_last - 0.5 * log(2 * pi * last)
    top = (left + right) / 2 - divergence(middle, mean) - 1 / (12 * last + 1)
    if terms == 1:
        return exp(top)
    growth = abs((right - left) / (last - first) - _steepness(middle, mean, rate))
    if growth * terms < 1e-6:
        return exp(top + growth * terms) * terms
    spread = (terms - 1) * growth / 2 + log1p(-exp(-terms * growth)) - log1p(-exp(-growth))
    return exp(min(700.0, top + spread))
