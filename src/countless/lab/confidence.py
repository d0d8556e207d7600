"""Exact binomial (Clopper-Pearson) confidence limits, by scipy. Imported late: the command line starts without it."""

from math import inf, log
from typing import Any

from countless.errors import InvalidParameter, MissingExtra


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtra("scipy", "lab") from None
    return stats


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
    return float(_scipy_stats().beta.ppf(1 - confidence, successes, trials - successes + 1))


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
    binom = _scipy_stats().binom
    return int(binom.ppf(risk, trials, p)), int(binom.isf(risk, trials, p))
