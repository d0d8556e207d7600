"""The length of a round: the number of reports with the fewest messages per e-fold.

A round of `m` reports and one synchronisation costs `m + 2k` messages and lets the total grow by the factor
`1 + alpha m / E`, `E` the allowance in steps.
"""

from collections.abc import Callable
from math import log1p

from countless.planning.plan import Cause, step_within

# Candidates for m are 2^(i/8): within 4.4 % of any best m, which costs under 0.1 % of the messages. One grid
# for every request makes the best m, and with it the allowance, grow with the number of sites.
_PER_OCTAVE = 8


class EndedByReports:
    """The base of plans whose rounds end at the `reports`-th report."""

    __slots__ = ()
    sites: int
    alpha: float
    allowance: float
    reports: float

    @property
    def steps_per_round(self) -> float:
        return self.reports

    @property
    def messages_per_round(self) -> float:
        return self.reports + 2 * self.sites

    def step(self, total: int) -> int:
        return step_within(self.alpha, self.allowance, total)


def messages_per_efold(sites: int, alpha: float, allowance: float, reports: float, sync: int = 2) -> float:
    """(m + 2k) / ln(1 + alpha m / E); `sync` is 3 where the paper's own synchronisation is priced."""
    return (reports + sync * sites) / log1p(alpha * reports / allowance)


def reasons_for_length(reports: int, cost: float) -> tuple[Cause, Cause]:
    return (
        Cause("reports", reports, "least (m + 2k) / ln(1 + alpha m/E) among m = floor(2^(i/8))"),
        Cause("messages_per_efold", cost, "(m + 2k) / ln(1 + alpha m/E)"),
    )


def candidate(index: int) -> int:
    """The index-th candidate for m; the first few repeat."""
    return int(2.0 ** (index / _PER_OCTAVE))


def best_reports(sites: int, cost: Callable[[int], float]) -> int:
    """The candidate m with the least cost, for a cost that falls and then rises. Starts near m = 2k."""
    seen: dict[int, float] = {}

    def at(index: int) -> float:
        reports = candidate(index)
        if reports not in seen:
            seen[reports] = cost(reports)
        return seen[reports]

    best = _PER_OCTAVE * (2 * sites).bit_length()
    stride = 2 * _PER_OCTAVE
    while stride:
        lower, upper = max(0, best - stride), best + stride
        if at(lower) < at(best):
            best = lower
        elif at(upper) < at(best):
            best = upper
        else:
            stride //= 2
    return candidate(best)
