"""The published answers of the past, for charts and rolling counts: in memory, at most MAX_POINTS of each counter.

Recent points are dense and old ones sparse, so an hour and a month both fit. Points for the read scope and round marks
for operators are separate series: if they shared their points, the times that are kept would reveal when rounds begin.
"""

import asyncio
import logging
from array import array
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import ceil, log2
from time import time
from typing import NamedTuple, Protocol

from countless.clock import Clock, steady_clock
from countless.core.answer import State
from countless.core.periods.rolling import TotalRecord
from countless.server.http.history.counter_sums import CounterSum, by_counter
from countless.server.http.history.edges import SHORTEST_S, Edges
from countless.server.http.history.family_parts import family_parts
from countless.server.http.server_view import ServerView
from countless.server.kinds.windowed_counter import AnyAnswer
from countless.server.sessions.tracked import MessageCount
from countless.wire.keys import counter_of

log = logging.getLogger("countless.history")

MAX_POINTS = 320  # a chart cannot show more
MAX_RECORDED = 2_000  # counters; together at most about 60 MB
RECORD_INTERVAL_S = 1.0
CLOCK_STEP_S = 2.0  # a clock that gains more than this between two readings was set
STATES = tuple(State)
_HOLDS = (STATES.index(State.EXACT), STATES.index(State.HOLDING))


class _Which(NamedTuple):
    """A counter, a family or a label; or the sum of a counter and its labelled series."""

    name: str
    is_sum: bool = False


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


class Recorded(Protocol):
    """What is recorded of a counter, of the sum of its labelled series, or of a family or one of its labels."""

    @property
    def name(self) -> str: ...

    @property
    def published_answer(self) -> AnyAnswer: ...

    @property
    def traffic(self) -> MessageCount: ...

    @property
    def coordinator(self) -> "HasPhase": ...


class HasPhase(Protocol):
    @property
    def phase(self) -> int | None: ...


class History:
    __slots__ = ("_edges", "_last", "_traffic", "points", "recorded_at", "round_marks", "site_seconds")

    def __init__(self, counter: Recorded, now: float) -> None:
        self.points = TimeSeries(5)  # time, estimate, lower, upper, index in STATES: for the read scope
        self.round_marks = TimeSeries(3)  # time, round, phase (-1: none): for operators only
        self.site_seconds = reachable_sites(counter.published_answer) * max(0.0, now - counter.traffic.began)
        self._edges = Edges()
        self._traffic = counter.traffic
        self.recorded_at = now
        self._last: tuple[AnyAnswer, int | None] | None = None
        if counter.traffic.new and counter.traffic.began < now:
            self.points.add(counter.traffic.began, 0, 0, 0, STATES.index(State.EXACT))

    def matches(self, counter: Recorded) -> bool:
        """False if the counter was deleted, and created again under its name."""
        return counter.traffic is self._traffic

    def record(self, counter: Recorded, now: float) -> None:
        answer, phase = counter.published_answer, counter.coordinator.phase
        self.site_seconds += reachable_sites(answer) * max(0.0, now - self.recorded_at)
        before, self.recorded_at = self.recorded_at, now
        past = self._record(before) if before // SHORTEST_S != now // SHORTEST_S else None
        if self._last != (answer, phase):
            exact = answer.state is State.EXACT
            bounds = (answer.estimate, answer.estimate) if exact else (answer.lower, answer.upper)
            row = float(answer.estimate), *map(float, bounds), STATES.index(answer.state)
            if row != self.points.last[1:]:
                if self._last is not None:
                    self.points.repeat(before)  # the change came after that
                self.points.add(now, *row)
            self.round_marks.add(now, answer.round, -1 if phase is None else phase)
            self._last = answer, phase
        if past is not None:
            self._edges.add(past, self._record(now))

    def records(self) -> list[TotalRecord]:
        """For rolling counts. The last one is of the time of the last call of `record`."""
        *columns, states = (self.points.column(index) for index in range(len(TotalRecord._fields)))
        found = [
            *map(TotalRecord._make, zip(*columns, [state in _HOLDS for state in states], strict=True)),
            *self._edges,
        ]
        found.sort()
        return [*found, self._record(self.recorded_at)]

    def _record(self, moment: float) -> TotalRecord:
        """The last answer, as it was at this moment."""
        _, *numbers, state = self.points.last
        return TotalRecord._make((moment, *numbers, state in _HOLDS))

    def shift(self, seconds: float) -> None:
        self.recorded_at += seconds
        self.points.shift(seconds)
        self._edges.shift(seconds)
        self.round_marks.shift(seconds)


class Recorder:
    """Histories of the first MAX_RECORDED counters and of their sums over labels, and of any other from the time when a
    page first shows it.
    """

    def __init__(self, server: ServerView, clock: Clock = time, steady: Clock = steady_clock) -> None:
        self._server = server
        self._clock = clock
        self._steady = steady
        self.started = clock()
        self._last_read = clock(), steady()
        self._histories: dict[_Which, History] = {}  # the least recently requested first

    def now(self) -> float:
        """What the clock shows. If it was set, the times of all records move with it: they are as old as before."""
        now, steady = self._clock(), self._steady()
        (last, last_steady), self._last_read = self._last_read, (now, steady)
        step = now - last - (steady - last_steady)
        if now < last or step > CLOCK_STEP_S:
            for history in self._histories.values():
                history.shift(step)
            for counter in (*self._server.counters.values(), *self._server.families.by_name.values()):
                if counter.traffic.began <= last:  # else it began after the step
                    counter.traffic.began += step
        return now

    async def run(self) -> None:
        while True:
            try:
                self.tick()
            except Exception:  # without charts the coordinator still works
                log.exception("history not recorded: please report this")
            await asyncio.sleep(RECORD_INTERVAL_S)

    def tick(self) -> None:
        """Record every counter that has a history, and start histories of others up to MAX_RECORDED."""
        now, counters = self.now(), self._recorded()
        for which in [which for which in self._histories if which not in counters]:
            del self._histories[which]
        if len(self._histories) < min(MAX_RECORDED, len(counters)):
            for which, counter in counters.items():
                if which not in self._histories and len(self._histories) < MAX_RECORDED:
                    self._histories[which] = History(counter, now)
        for which, history in self._histories.items():
            if not history.matches(counters[which]):
                history = self._histories[which] = History(counters[which], now)
            history.record(counters[which], now)

    def _recorded(self) -> Mapping[_Which, Recorded]:
        """All counters and families, and the sums of those with labels. Of very many
        counters, only the sums that a page has shown; of the labels of families, those that it has shown.
        """
        counters, families = self._server.counters, self._server.families.by_name
        if len(counters) <= MAX_RECORDED:
            sums = [each for each in by_counter(counters).values() if isinstance(each, CounterSum)]
        else:
            names = [which.name for which in self._histories if which.is_sum]
            sums = [CounterSum(name, parts) for name in names if (parts := self._server.parts(name))]
        names = [which.name for which in self._histories if counter_of(which.name) is not None]
        labels = [part for name in names for part in family_parts(families, name)]
        return {_which(each): each for each in (*counters.values(), *families.values(), *sums, *labels)}

    def for_counter(self, counter: Recorded) -> History:
        """The history of this counter up to now. It may replace the one that was not requested for the longest time."""
        now = self.now()
        history = self._histories.pop(_which(counter), None)
        if history is None or not history.matches(counter):
            history = History(counter, now)
        if len(self._histories) >= MAX_RECORDED:
            del self._histories[next(iter(self._histories))]
        self._histories[_which(counter)] = history
        history.record(counter, now)
        return history

    def debug_state(self) -> list[str]:
        return sorted(which.name for which in self._histories)


def _which(counter: Recorded) -> _Which:
    return _Which(counter.name, isinstance(counter, CounterSum))


def reachable_sites(answer: AnyAnswer) -> int:
    return answer.sites - len(answer.silent)
