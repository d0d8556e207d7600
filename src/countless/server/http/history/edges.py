"""Totals at the beginnings of minutes, hours and days of UTC: the bars of counters without windows begin and end there.

The history of answers is sparse where it is old, and its times are not those of a clock's minutes. So these are kept
beside it: of the last hour every minute, of two days every hour, of a month every day.
"""

from array import array
from collections.abc import Iterator
from itertools import pairwise

from countless.core.periods.rolling import TotalRecord

LENGTHS_S = {"minute": 60, "hour": 3600, "day": 86_400}
SHORTEST_S = LENGTHS_S["minute"]
BARS = {"minute": 60, "hour": 48, "day": 31}
_MAX_AGES_S = {LENGTHS_S[per] * (number + 1): LENGTHS_S[per] for per, number in BARS.items()}  # to the length of a cell
_MAX_ROWS = 180
_WIDTH = len(TotalRecord._fields)


class Edges:
    """Records, oldest first. A record says what the total was at an edge: lower <= N(edge) <= upper.

    >>> edges = Edges()
    >>> edges.add(TotalRecord(59.5, 10, 9, 11, True), TotalRecord(60.5, 20, 19, 21, True))
    >>> list(edges)
    [TotalRecord(time=60.0, estimate=15.0, lower=9.0, upper=21.0, holds=1.0)]
    """

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array("d")

    def __iter__(self) -> Iterator[TotalRecord]:
        return map(TotalRecord._make, zip(*(self._numbers[index::_WIDTH] for index in range(_WIDTH)), strict=True))

    def add(self, before: TotalRecord, now: TotalRecord) -> None:
        """What was known at two moments. Only if there is an edge between them, something is kept."""
        for edge in dict.fromkeys(now.time // length * length for length in reversed(LENGTHS_S.values())):
            if before.time < edge:
                share = (edge - before.time) / (now.time - before.time)
                estimate = before.estimate + share * (now.estimate - before.estimate)
                self._numbers.extend((edge, estimate, before.lower, now.upper, now.holds))
        if len(self._numbers) > _MAX_ROWS * _WIDTH:
            self._thin(now.time)

    def shift(self, seconds: float) -> None:
        for start in range(0, len(self._numbers), _WIDTH):
            self._numbers[start] += seconds

    def _thin(self, now: float) -> None:
        """Keep the first row of each cell: of the last hour, a cell is a minute; of older rows, an hour or a day."""
        kept, rows = array("d"), list(self)
        for earlier, row in pairwise([rows[0]._replace(time=-1.0), *rows]):
            cell = next((cell for max_age, cell in _MAX_AGES_S.items() if now - row.time <= max_age), None)
            if cell is not None and earlier.time // cell != row.time // cell:
                kept.extend(row)
        self._numbers = kept
