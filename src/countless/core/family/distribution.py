"""Ranks and quantiles: a family whose labels are buckets of values, each a constant factor above the one before."""

from bisect import bisect, bisect_left
from collections.abc import Mapping
from itertools import accumulate
from math import ceil, inf, isfinite, log
from typing import NamedTuple

from countless.core.family.messages import OVERFLOW, Totals, UpMessage
from countless.core.family.site import NO_MESSAGES, FamilySite
from countless.core.parameters import exact_fraction
from countless.errors import InvalidParameter

ZERO = "zero"  # the bucket of values below the least one
MIN_VALUE = 1e-9
MAX_VALUE = (2 - 2**-52) * 2.0**1023  # the largest float
_MAX_CHARS = 8  # more than the number of a bucket has, at the least accuracy


class BucketSite(FamilySite):
    """A site that reports all labels that have grown when they have grown by `steps.total` together.

    So it holds back fewer than `steps.total` events, whatever their labels: ranks are sums over labels.
    """

    __slots__ = ()

    def _count(self, label: str, n: int) -> tuple[UpMessage, ...]:
        self._pending[label] = self._pending.get(label, 0) + n
        self._pending_total += n
        return self._start_round()

    def _start_round(self) -> tuple[UpMessage, ...]:
        return NO_MESSAGES if self._pending_total < self.steps.total else self._report(self._grown(1))

    def _resend(self) -> tuple[UpMessage, ...]:
        """Include labels that were never reported: a report says that no more than `_pending_total` is held back."""
        return self._report(list(self._pending))

    def sync(self) -> Totals:
        return Totals(self.family, self.round, self.steps, self.total, self.reported)


class Buckets:
    """Bucket i has the values in (base^(i-1), base^i]; the middle of a bucket is within `accuracy` of all of them.

    >>> buckets = Buckets(0.01)
    >>> buckets.label(17.0), [round(edge, 2) for edge in buckets.edges(142)]
    ('142', [16.78, 17.12])
    """

    def __init__(self, accuracy: float) -> None:
        if isinstance(accuracy, bool) or not isinstance(accuracy, int | float) or not 1e-4 <= accuracy <= 0.5:
            raise InvalidParameter("accuracy", accuracy, "a number from 0.0001 to 0.5")
        self.accuracy = accuracy
        self._base = (1 + accuracy) / (1 - accuracy)
        self._log_base = log(self._base)

    def index(self, value: float) -> int | None:
        """None is the bucket of the values below MIN_VALUE."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
            raise InvalidParameter("value", value, "a finite number of at least 0")
        return None if value < MIN_VALUE else self._index(value)

    def _index(self, value: float) -> int:
        index = ceil(log(value) / self._log_base)  # it is rounded: next to an edge it may be on the wrong side
        return index + (value > self._upper_edge(index)) - (value <= self._upper_edge(index - 1))

    def label(self, value: float) -> str:
        index = self.index(value)
        return ZERO if index is None else str(index)

    def has(self, label: str) -> bool:
        """True if some value has this label.

        >>> [Buckets(0.01).has(label) for label in ("zero", "142", "0142", "-2000", "99999", "x")]
        [True, True, False, False, False, False]
        """
        number = label.removeprefix("-")
        if not (number.isascii() and number.isdecimal() and len(number) <= _MAX_CHARS):
            return label == ZERO
        return self._index(MIN_VALUE) <= int(label) <= self._index(MAX_VALUE) and str(int(label)) == label

    def edges(self, index: int | None) -> tuple[float, float]:
        return (0.0, MIN_VALUE) if index is None else (self._upper_edge(index - 1), self._upper_edge(index))

    def middle(self, index: int | None) -> float:
        if index is None:
            return 0.0
        return min(MAX_VALUE, self._upper_edge(index - 1) * (2 * self._base / (self._base + 1)))

    def _upper_edge(self, index: int) -> float:
        try:
            return self._base**index
        except OverflowError:  # the bucket of the largest values
            return MAX_VALUE


class Quantile(NamedTuple):
    """The least value with a share `q` of all observations at or below it: lower <= truth <= upper.

    `q` is the decimal that was written: 0.14 of 50 observations is the seventh, not the eighth because of a float.
    """

    q: float
    estimate: float
    lower: float
    upper: float


class Rank(NamedTuple):
    """The number of observations that are at most `value`: lower <= truth <= upper."""

    value: float
    lower: int
    upper: int


class Ranks:
    """The known counts of buckets; up to `held_back` observations, of any value, are not in them.

    Nor are those beyond the cap on labels, whose values are not known either.
    """

    def __init__(self, counts: Mapping[str, int], held_back: int, buckets: Buckets) -> None:
        self._buckets = buckets
        overflow = counts.get(OVERFLOW, 0)
        self._held_back = held_back + overflow
        self._known = sum(counts.values()) - overflow
        # There may be a million buckets, which a request is not to read again for each value.
        numbered = sorted((int(label), count) for label, count in counts.items() if label and label != ZERO)
        zeros = counts.get(ZERO, 0)
        self._indexes = [index for index, _ in numbered]
        self._reached = list(accumulate((count for _, count in numbered), initial=zeros))  # before each, and after all

    def rank(self, value: float) -> Rank:
        index = self._buckets.index(value)
        if index is None:
            return Rank(value, 0, self._reached[0] + self._held_back)
        below, until = self._reached[bisect_left(self._indexes, index)], self._reached[bisect(self._indexes, index)]
        return Rank(value, below, until + self._held_back)

    def quantile(self, q: float) -> Quantile | None:
        """None if nothing is known."""
        if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
            raise InvalidParameter("q", q, "a number from 0 to 1")
        if not self._known:
            return None
        known, held_back, edges = self._known, self._held_back, self._buckets.edges
        share = exact_fraction(q)
        highest = ceil(share * (known + held_back))  # of the ranks that it may have
        lowest = highest - held_back  # if all that is held back is below it
        lower = 0.0 if held_back and lowest <= 0 else edges(self._at(lowest))[0]
        upper = edges(self._at(highest))[1] if highest <= known else inf
        return Quantile(q, self._buckets.middle(self._at(ceil(share * known))), lower, upper)

    def _at(self, rank: int) -> int | None:
        """The first bucket that reaches a rank."""
        position = bisect_left(self._reached, max(1, rank))
        return self._indexes[min(position, len(self._indexes)) - 1] if position and self._indexes else None
