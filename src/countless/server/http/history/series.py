"""The past of a counter in little memory: its answers, and its totals at the edges of minutes, hours and days."""

from array import array
from collections.abc import Iterator
from itertools import pairwise
from math import ceil, log2

from countless.core.periods.rolling import TotalRecord

MAX_POINTS = 320  # a chart cannot show more
LENGTHS_S = {"minute": 60, "hour": 3600, "day": 86_400}
SHORTEST_S = LENGTHS_S["minute"]
BARS = {"minute": 60, "hour": 48, "day": 31}
_MAX_AGES_S = {LENGTHS_S[per] * (number + 1): LENGTHS_S[per] for per, number in BARS.items()}  # to the length of a cell
_MAX_ROWS = 180
_WIDTH = len(TotalRecord._fields)


class TimeSeries:
    """Rows of `width` numbers, oldest first; the first number of a row is its time.

    >>> series = TimeSeries(2, max_rows=50)
    >>> for second in range(5000): series.add(second, second * 10)
    >>> [int(time) for time, _ in series][:10]
    [0, 2048, 3072, 4096, 4608, 4736, 4864, 4928, 4960, 4965]
    """

    __slots__ = ("_max_rows", "_numbers", "_width")

    def __init__(self, width: int, max_rows: int = MAX_POINTS) -> None:
        self._width = width
        self._max_rows = max_rows
        self._numbers = array("d")

    def __len__(self) -> int:
        return len(self._numbers) // self._width

    def __iter__(self) -> Iterator[tuple[float, ...]]:
        for start in range(0, len(self._numbers), self._width):
            yield tuple(self._numbers[start : start + self._width])

    def column(self, index: int) -> list[float]:
        return self._numbers[index :: self._width].tolist()

    @property
    def last(self) -> tuple[float, ...]:
        """The last row; empty if there is none."""
        return tuple(self._numbers[-self._width :])

    def add(self, *row: float) -> None:
        """Append a row, unless it differs from the last one in nothing but its time."""
        if row[1:] != self.last[1:]:
            self._append(*row)

    def repeat(self, time: float) -> None:
        """The last row was still true at this time."""
        if self.last and time > self.last[0]:
            self._append(time, *self.last[1:])

    def shift(self, seconds: float) -> None:
        for start in range(0, len(self._numbers), self._width):
            self._numbers[start] += seconds

    def _append(self, *row: float) -> None:
        self._numbers.extend(row)
        if len(self) > self._max_rows:
            self._downsample()

    def _downsample(self) -> None:
        """Keep the newest quarter and, of the rest, the first row of each time cell. Cells of older rows are larger.

        A cell is as long as about 25/max_rows of its age, so ten years of seconds fit. Cells are nested powers of two,
        so the rows that are kept do not depend on when this is called.
        """
        rows = list(self)
        newest, dense = rows[-1][0], len(rows) * 3 // 4
        kept = rows[:1]
        for before, row in pairwise(rows[:dense]):
            cell = 2.0 ** ceil(log2(max(1.0, newest - row[0]) * 25 / self._max_rows))
            if row[0] // cell != before[0] // cell:
                kept.append(row)
        if len(kept) > self._max_rows * 0.65:  # older than ten years of seconds
            kept = kept[::2]
        self._numbers = array("d", (number for row in kept + rows[dense:] for number in row))


class Edges:
    """Totals at the beginnings of minutes, hours and days of UTC: there the bars of counters without windows begin.

    The series of answers is sparse where it is old, and its times are not those of a clock's minutes. So these are kept
    beside it: of the last hour every minute, of two days every hour, of a month every day. Records, oldest first; one
    says what the total was at an edge: lower <= N(edge) <= upper.

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
        """Add the answers of two moments. Only if there is an edge between them, something is kept."""
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
