"""Counts of any span, from the published answers of the past: N(end) - N(start), with bounds.

A true total never falls. So an answer from before `start` gives a lower bound of N(start), and one from after it an
upper bound, however sparse the records are. The same is true of the end, which is often now:

    records      r1 -------- r2 ------------- r3 ------ now
    start                         ^
    N(start)     at least lower(r2), at most upper(r3)
    count        from lower(now) - upper(r3) to upper(now) - lower(r2)

While a site cannot be reached, it may count more than the answer allows for. So upper bounds are taken from answers in
the states exact and holding only.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import ceil, floor, inf
from typing import NamedTuple

from countless.core.periods.spans import SpanCount
from countless.core.periods.window import WindowState


class TotalRecord(NamedTuple):
    """The answer that was published at a moment. `holds`: every site could be reached, so `upper` is an upper bound."""

    time: float
    estimate: float
    lower: float
    upper: float
    holds: bool


def count_since(records: Sequence[TotalRecord], then: float) -> SpanCount:
    """The count from `then` to the time of the last record. There is at least one; they are given oldest first.

    >>> numbers = (0, 100, 90, 110), (60, 200, 190, 210), (90, 300, 290, 310)
    >>> records = [TotalRecord(*each, holds=True) for each in numbers]
    >>> count_since(records, then=60)[2:5], count_since(records, then=30)[2:5]
    ((80, 100, 120), (80, 150, 220))
    """
    return PastTotals(records).count(then, records[-1].time)


class PastTotals:
    """Bounds of the total at any moment up to the last record, for counts of many spans."""

    def __init__(self, records: Sequence[TotalRecord]) -> None:
        """There is at least one record; they are given oldest first."""
        self.first, self.last = records[0], records[-1]
        self._records = records
        self._times, _, lowers, uppers, holds = zip(*records, strict=True)
        self._least = list(accumulate(lowers, max))  # up to each record
        most = [upper if holds else inf for upper, holds in zip(uppers, holds, strict=True)]
        self._most = list(accumulate(reversed(most), min))[::-1]  # from each record on

    def holds(self, moment: float) -> bool:
        """True if `upper` of a count that ends then is a bound: all sites could be reached then, or later."""
        return self._most_at(moment) < inf

    def count(self, start: float, end: float) -> SpanCount:
        """The count from `start` to `end`, which is not after the last record."""
        most_at_start, most_at_end = self._most_at(start), self._most_at(end)
        lower = 0 if most_at_start == inf else max(0, self._least_at(end) - floor(most_at_start))
        upper = max(lower, floor(self.last.upper if most_at_end == inf else most_at_end) - self._least_at(start))
        estimate = min(max(lower, round(self._estimate_at(end) - self._estimate_at(start))), upper)
        unknown = start < self.first.time and self.first.upper > 0
        known_since = self.first.time if unknown else None
        return SpanCount(start, end, lower, estimate, upper, WindowState.OPEN, known_since=known_since)

    def _least_at(self, moment: float) -> int:
        index = bisect_right(self._times, moment)
        return ceil(self._least[index - 1]) if index else 0

    def _most_at(self, moment: float) -> float:
        index = bisect_left(self._times, moment)
        return self._most[index] if index < len(self._most) else inf

    def _estimate_at(self, moment: float) -> float:
        """Between two records, as if events had come evenly; before the first, its estimate."""
        after = bisect_left(self._times, moment)
        if after == 0:
            return self.first.estimate
        if after == len(self._times):
            return self.last.estimate
        earlier, later = self._records[after - 1], self._records[after]
        share = (moment - earlier.time) / (later.time - earlier.time)
        return earlier.estimate + share * (later.estimate - earlier.estimate)


def narrower(one: SpanCount, other: SpanCount) -> SpanCount:
    """Combine two counts of the same span.

    They differ in what decides when an event was: the clock of its site (windows) or of the coordinator (records). If
    those clocks are so wrong that the counts contradict each other, the first one stands.
    """
    lower, upper = max(one.lower, other.lower), min(one.upper, other.upper)
    if lower > upper:
        return one
    best = min(one, other, key=lambda count: count.upper - count.lower)
    known = [count.known_since for count in (one, other)]
    known_since = None if None in known else min(moment for moment in known if moment is not None)
    estimate, lost = min(max(lower, best.estimate), upper), max(one.lost, other.lost)
    return one._replace(lower=lower, estimate=estimate, upper=upper, lost=lost, known_since=known_since)
