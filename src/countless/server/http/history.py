"""What the charts of the page show: a short past of each counter, kept in memory, thinned as it grows.

The recent past is dense and the distant past is coarse, so that a chart of an hour and one of a month both fit into a
few hundred points. What the public may see and what only operators may see are two series: if they shared their points,
the moments that are kept would tell the public when rounds begin.
"""

import asyncio
import logging
from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import ceil, log2
from time import time

from countless.core.answer import Answer, State
from countless.server.http.server_view import ServerView
from countless.server.sessions.counter import Counter

log = logging.getLogger("countless.history")

MOST_POINTS = 320  # more cannot be seen
MOST_RECORDED = 2_000  # counters: together at most some 40 MB
PERIOD = 1.0  # seconds between two looks at every counter
STATE_TABLE = tuple(State)


class Series:
    """Rows of numbers in the order of time; the first number of a row is its time.

    >>> series = Series(2, most=50)
    >>> for second in range(5000): series.add(second, second * 10)
    >>> [int(time) for time, _ in series][:10]
    [0, 2048, 3072, 4096, 4608, 4736, 4864, 4928, 4960, 4965]
    """

    __slots__ = ("_most", "_numbers", "_width")

    def __init__(self, width: int, most: int = MOST_POINTS) -> None:
        self._width = width
        self._most = most
        self._numbers = array("d")

    def __len__(self) -> int:
        return len(self._numbers) // self._width

    def __iter__(self) -> Iterator[tuple[float, ...]]:
        for start in range(0, len(self._numbers), self._width):
            yield tuple(self._numbers[start : start + self._width])

    @property
    def last(self) -> tuple[float, ...]:
        """The last row, or nothing."""
        return tuple(self._numbers[-self._width :])

    def add(self, *row: float) -> None:
        """One more, unless it says what the last one said."""
        if row[1:] == self.last[1:]:
            return
        self._numbers.extend(row)
        if len(self) > self._most:
            self._thin()

    def _thin(self) -> None:
        """The newest quarter stays; of the rest, the first row of each cell of time. Old rows have large cells.

        A cell is about 25/most of its age long, so that ten years of seconds fit. Cells are powers of two, one inside
        the other: which row stays does not depend on when it is looked at.
        """
        rows = list(self)
        newest, dense = rows[-1][0], len(rows) * 3 // 4
        kept = rows[:1]
        for before, row in pairwise(rows[:dense]):
            cell = 2.0 ** ceil(log2(max(1.0, newest - row[0]) * 25 / self._most))
            if row[0] // cell != before[0] // cell:
                kept.append(row)
        if len(kept) > self._most * 0.65:  # ages beyond all measure
            kept = kept[::2]
        self._numbers = array("d", (number for row in kept + rows[dense:] for number in row))


class History:
    """The past of one counter."""

    __slots__ = ("_seen", "_then", "marks", "points", "site_seconds")

    def __init__(self, counter: Counter, now: float) -> None:
        self.points = Series(4)  # time, estimate, alpha, index of the state: all of it public
        self.marks = Series(3)  # time, round, phase (-1: none): for operators
        self.site_seconds = heard_sites(counter.published_answer) * max(0.0, now - counter.traffic.began)
        self._then = now
        self._seen: tuple[Answer, int | None] | None = None

    def is_of(self, counter: Counter) -> bool:
        """Whether it is still the same counter: a total that has fallen is another one of the same name."""
        return self._seen is None or counter.published_answer.estimate >= self._seen[0].estimate

    def record(self, counter: Counter, now: float) -> None:
        """Look at the counter."""
        answer, phase = counter.published_answer, counter.coordinator.phase
        self.site_seconds += heard_sites(answer) * max(0.0, now - self._then)
        self._then = now
        if self._seen == (answer, phase):
            return
        self._seen = answer, phase
        self.points.add(now, float(answer.estimate), answer.alpha, STATE_TABLE.index(answer.state))
        self.marks.add(now, answer.round, -1 if phase is None else phase)


class Recorder:
    """The pasts of the first two thousand counters, and of any other from the moment somebody looks at it."""

    def __init__(self, host: ServerView, clock: Callable[[], float] = time) -> None:
        self._host = host
        self._clock = clock
        self._histories: dict[str, History] = {}  # in the order in which they were last asked for

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                self.tick()
            except Exception:  # charts are not worth dying for
                log.exception("the past of the counters could not be recorded: please report this")
            await asyncio.sleep(PERIOD)

    def tick(self) -> None:
        """Look at every counter that is recorded, and take in new ones while there is room."""
        now, counters = self._clock(), self._host.counters
        for name in [name for name in self._histories if name not in counters]:
            del self._histories[name]
        if len(self._histories) < min(MOST_RECORDED, len(counters)):
            for name, counter in counters.items():
                if name not in self._histories and len(self._histories) < MOST_RECORDED:
                    self._histories[name] = History(counter, now)
        for name, history in self._histories.items():
            if not history.is_of(counters[name]):
                history = self._histories[name] = History(counters[name], now)
            history.record(counters[name], now)

    def of(self, counter: Counter) -> History:
        """The past of a counter that somebody looks at, up to now. The one nobody asked for the longest makes room."""
        now = self._clock()
        history = self._histories.pop(counter.name, None)
        if history is None or not history.is_of(counter):
            history = History(counter, now)
        if len(self._histories) >= MOST_RECORDED:
            del self._histories[next(iter(self._histories))]
        self._histories[counter.name] = history
        history.record(counter, now)
        return history


def heard_sites(answer: Answer) -> int:
    """Sites that could have sent something lately."""
    return answer.sites - len(answer.silent)
