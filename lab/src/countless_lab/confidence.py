"""Exact binomial (Clopper-Pearson) confidence limits, by scipy. Imported late: the command line starts without it."""

from math import ceil, inf, log
from typing import Any

from countless.errors import InvalidParameter, MissingExtra


def _scipy_special() -> Any:
    """Its distributions, in `scipy.stats`, would take a second to import."""
    try:
        from scipy import special
    except ImportError:
        raise MissingExtra("scipy", "figures", "countless-lab") from None
    return special


def lower_limit(successes: int, trials: int, confidence: float) -> float:
    """A p that is below the true probability with at least this confidence.

    >>> round(lower_limit(10, 10, 0.95), 4)  # 0.05 ** 0.1
    0.7411
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise InvalidParameter("successes", successes, f"between 0 and trials = {trials}")
    if not 0 < confidence < 1:
        raise InvalidParameter("confidence", confidence, "between 0 and 1, both excluded")
    if successes == 0:
        return 0.0
    return float(_scipy_special().betaincinv(successes, trials - successes + 1, 1 - confidence))


def upper_limit(successes: int, trials: int, confidence: float) -> float:
    """A p that is above the true probability with at least this confidence."""
    return 1.0 - lower_limit(trials - successes, trials, confidence)


def log_ratio_limit(successes_p: int, successes_q: int, trials: int, confidence: float, delta: float = 0.0) -> float:
    """A lower limit of ln((p - delta)/q), from the successes in so many trials of each; the risk is divided evenly."""
    each = 1 - (1 - confidence) / 2
    low, high = lower_limit(successes_p, trials, each) - delta, upper_limit(successes_q, trials, each)
    return log(low / high) if low > 0 else -inf


def quantile(trials: int, p: float, risk: float) -> tuple[int, int]:
    """Counts (low, high): a binomial variable is below the one, or above the other, with probability at most `risk`."""
    return _low(trials, p, risk), trials - _low(trials, 1 - p, risk)


def _low(trials: int, p: float, risk: float) -> int:
    """The least count that is not exceeded with probability `risk` or more."""
    if p in (0, 1):
        return round(trials * p)
    special = _scipy_special()
    count: int = max(0, ceil(special.bdtrik(risk, trials, p)))  # to within the precision of its search
    while count > 0 and special.bdtr(count - 1, trials, p) >= risk:
        count -= 1
    while special.bdtr(count, trials, p) < risk:
        count += 1
    return count
