"""Rolling counts of any counter, from its published answers of the past: N(now) - N(then), with bounds.

A true total never falls. So an answer from before `then` gives a lower bound of N(then), and one from after it an upper
bound, however sparse the records are:

    records      r1 -------- r2 ------------- r3 ------ now
    then                          ^
    N(then)      at least lower(r2), at most upper(r3)
    count        from lower(now) - upper(r3) to upper(now) - lower(r2)

While a site cannot be reached, it may count more than the answer allows for. So upper bounds are taken from answers in
the states exact and holding only.
"""

from collections.abc import Sequence
from math import ceil, floor, inf
from typing import NamedTuple

from countless.core.windows.spans import SpanCount
from countless.core.windows.window import WindowState


class Record(NamedTuple):
    """The answer that was published at a moment. `holds`: every site could be reached, so `upper` is an upper bound."""

    time: float
    estimate: float
    lower: float
    upper: float
    holds: bool


def count_since(records: Sequence[Record], then: float) -> SpanCount:
    """The count from `then` to the time of the last record. There is at least one; they are given oldest first.

    >>> records = [Record(0, 100, 90, 110, True), Record(60, 200, 190, 210, True), Record(90, 300, 290, 310, True)]
    >>> count_since(records, then=60)[2:5], count_since(records, then=30)[2:5]
    ((80, 100, 120), (80, 150, 220))
    """
    first, now = records[0], records[-1]
    known_before = [record for record in records if record.time <= then]
    least_then = max((ceil(record.lower) for record in known_before), default=0)
    most_then = min((record.upper for record in records if record.time >= then and record.holds), default=inf)
    least_now = max(ceil(record.lower) for record in records)
    lower = 0 if most_then == inf else max(0, least_now - floor(most_then))
    upper = max(lower, floor(now.upper) - least_then)
    estimate = min(max(lower, round(now.estimate - _estimate_at(records, then))), upper)
    unknown = not known_before and first.upper > 0
    return SpanCount(
        *(then, now.time, lower, estimate, upper, WindowState.OPEN), known_since=first.time if unknown else None
    )


def _estimate_at(records: Sequence[Record], then: float) -> float:
    """Between two records, as if events had come evenly; before the first, its estimate."""
    before = records[0]
    for record in records:
        if record.time >= then:
            share = (then - before.time) / (record.time - before.time) if before.time < then < record.time else 1.0
            return before.estimate + share * (record.estimate - before.estimate)
        before = record
    return before.estimate


def narrower(one: SpanCount, other: SpanCount) -> SpanCount:
    """What two counts of the same span say together.

    They differ in what decides when an event was: the clock of its site (windows) or of the coordinator (records). If
    those clocks are so wrong that the counts contradict each other, the first one stands.
    """
    lower, upper = max(one.lower, other.lower), min(one.upper, other.upper)
    if lower > upper:
        return one
    best = min(one, other, key=lambda count: count.upper - count.lower)
    known = [count.known_since for count in (one, other)]
    known_since = None if None in known else min(moment for moment in known if moment is not None)
    estimate = min(max(lower, best.estimate), upper)
    return one._replace(lower=lower, estimate=estimate, upper=upper, known_since=known_since)
