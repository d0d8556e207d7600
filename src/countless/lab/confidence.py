"""Exact binomial confidence limits (Clopper and Pearson 1934) with the standard library alone."""

from math import exp, inf, lgamma, log, log1p

from countless.errors import InvalidParameter


def log_choose(n: int, k: int) -> float:
    """ln of the binomial coefficient."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def upper_tail(successes: int, trials: int, p: float) -> float:
    """P(at least `successes` of `trials`), by summing the larger terms outwards from the likeliest.

    >>> round(upper_tail(3, 5, 0.5), 12)
    0.5
    """
    if successes <= 0 or p >= 1:
        return 1.0
    if p <= 0:
        return 0.0
    if successes <= trials * p:  # the lower tail is the smaller sum
        return 1.0 - _from(trials - successes + 1, trials, 1 - p)
    return _from(successes, trials, p)


def _from(first: int, trials: int, p: float) -> float:
    """P(X >= first) for first above the mean: terms fall at least geometrically."""
    if first > trials:
        return 0.0
    term = exp(log_choose(trials, first) + first * log(p) + (trials - first) * log1p(-p))
    total, k, odds = 0.0, first, p / (1 - p)
    while k <= trials and term > total * 1e-17:
        total += term
        term *= (trials - k) / (k + 1) * odds
        k += 1
    return min(1.0, total)


def lower_limit(successes: int, trials: int, confidence: float) -> float:
    """A p that is below the true probability with at least this confidence, before the data are seen.

    >>> round(lower_limit(10, 10, 0.95), 4)  # 0.05 ** 0.1
    0.7411
    """
    _check(successes, trials, confidence)
    if successes == 0:
        return 0.0
    low, high = 0.0, successes / trials
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(successes, trials, middle) <= 1 - confidence else (low, middle)
    return low


def upper_limit(successes: int, trials: int, confidence: float) -> float:
    """A p that is above the true probability with at least this confidence."""
    return 1.0 - lower_limit(trials - successes, trials, confidence)


def _check(successes: int, trials: int, confidence: float) -> None:
    if trials < 1 or not 0 <= successes <= trials:
        raise InvalidParameter("successes", successes, f"between 0 and trials = {trials}")
    if not 0 < confidence < 1:
        raise InvalidParameter("confidence", confidence, "between 0 and 1, both excluded")


def log_ratio_limit(mine: int, theirs: int, trials: int, confidence: float) -> float:
    """A lower limit of ln(p/q) from `mine` of `trials` under p and `theirs` under q; the risk is halved."""
    each = 1 - (1 - confidence) / 2
    low, high = lower_limit(mine, trials, each), upper_limit(theirs, trials, each)
    return log(low / high) if low > 0 else -inf


def quantile(trials: int, p: float, risk: float) -> tuple[int, int]:
    """Counts (low, high) that a binomial variable passes, on its side, with probability at most `risk`."""

    def search(wanted: float) -> int:  # the largest k with P(X >= k) >= wanted
        low, high = 0, trials + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if upper_tail(middle, trials, p) >= wanted else (low, middle)
        return low

    return search(1 - risk), search(risk)
