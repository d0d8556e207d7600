"""What became of the calls of one minute, judged when all have ended.

A call holds its prompt and `max_tokens` from when it was sent until it was answered, and has used what the model
charged. A refusal is *wrong* if the call would have fitted, with the slack to spare, at every moment between its
sending and its refusal, beside the calls that were refused wrongly before it.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple


class Outcome(NamedTuple):
    sent: float
    answered: float
    units: int  # held
    used: int | None  # None: refused


def over(outcomes: Iterable[Outcome], limit: int) -> int:
    return max(0, sum(each.used or 0 for each in outcomes) - limit)


def wrong_refusals(outcomes: Iterable[Outcome], limit: float) -> int:
    """`limit` is less the slack."""
    ordered = sorted(outcomes, key=lambda each: each.answered)
    changes = [(0.0, 0)]
    for each in ordered:
        if each.used is not None:
            changes += [(each.sent, each.units), (each.answered, each.used - each.units)]
    changes.sort()
    times, totals = [time for time, _ in changes], list(accumulate(units for _, units in changes))
    wrong = wronged = 0
    for each in ordered:
        if each.used is None:
            since, until = bisect_right(times, each.sent) - 1, bisect_right(times, each.answered)
            if max(totals[since:until]) + wronged + each.units <= limit:
                wrong += 1
                wronged += each.units
    return wrong
