"""The published answers of the past, for charts and rolling counts: in memory, at most MAX_POINTS of each counter.

Recent points are dense and old ones sparse, so an hour and a month both fit. Points for the read scope and round marks
for operators are separate series: if they shared their points, the times that are kept would reveal when rounds begin.
"""

import asyncio
import logging
from collections.abc import Mapping
from math import inf, nextafter
from time import time
from typing import NamedTuple

from countless.clock import Clock, steady_clock
from countless.core.answer import State
from countless.core.periods.rolling import TotalRecord
from countless.server.http.history.parts import CounterSum, by_counter, label_of_family
from countless.server.http.history.series import SHORTEST_S, Edges, TimeSeries
from countless.server.http.server_view import ServerView
from countless.server.sessions.readable import AnyAnswer, MessageCount, Readable

log = logging.getLogger("countless.history")

MAX_RECORDED = 2_000  # counters; together at most about 60 MB
RECORD_INTERVAL_S = 1.0
CLOCK_STEP_S = 2.0  # a clock that gains more than this between two readings was set
STATES = tuple(State)
_HOLDS = (STATES.index(State.EXACT), STATES.index(State.HOLDING))


class _Which(NamedTuple):
    """A counter, a family or a label; or the sum of a counter and its labelled series."""

    name: str
    is_sum: bool = False


class History:
    __slots__ = ("_edges", "_last", "_parts", "points", "recorded_at", "round_marks", "site_seconds")

    def __init__(self, counter: Readable, now: float) -> None:
        self.points = TimeSeries(5)  # time, estimate, lower, upper, index in STATES: for the read scope
        self.round_marks = TimeSeries(3)  # time, round, phase (-1: none): for operators only
        self.site_seconds = reachable_sites(counter.published_answer) * max(0.0, now - counter.traffic.began)
        self._edges = Edges()
        self._parts = _parts_of(counter)
        self.recorded_at = now
        self._last: tuple[AnyAnswer, int | None] | None = None
        if counter.traffic.new and counter.traffic.began < now:
            self.points.add(counter.traffic.began, 0, 0, 0, STATES.index(State.EXACT))

    def matches(self, counter: Readable) -> bool:
        """False if the counter was deleted, or one of the counters that it adds up: the rest has another past."""
        return self._parts <= _parts_of(counter)

    def record(self, counter: Readable, now: float) -> None:
        answer, rounds = counter.published_answer, counter.rounds
        phase = None if rounds is None else rounds.coordinator.phase
        self.site_seconds += reachable_sites(answer) * max(0.0, now - self.recorded_at)
        before, self.recorded_at = self.recorded_at, now
        self._parts = _parts_of(counter)
        past = self._record(before) if before // SHORTEST_S != now // SHORTEST_S else None
        if self._last != (answer, phase):
            exact = answer.state is State.EXACT
            bounds = (answer.estimate, answer.estimate) if exact else (answer.lower, answer.upper)
            row = float(answer.estimate), *_doubles(*bounds), STATES.index(answer.state)
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
        """The time that the clock shows. If it was set, all records move with it: they are as old as before."""
        now, steady = self._clock(), self._steady()
        (last, last_steady), self._last_read = self._last_read, (now, steady)
        step = now - last - (steady - last_steady)
        if now < last or step > CLOCK_STEP_S:
            for history in self._histories.values():
                history.shift(step)
            for counter in self._server.by_name.values():
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

    def _recorded(self) -> Mapping[_Which, Readable]:
        """All counters and families, and the sums of those with labels. Of very many
        counters, only the sums that a page has shown; of the labels of families, those that it has shown.
        """
        by_name = self._server.by_name
        if len(by_name) <= MAX_RECORDED:
            sums = [each for each in by_counter(by_name).values() if each.parts]
        else:
            names = [which.name for which in self._histories if which.is_sum]
            sums = [CounterSum(name, parts) for name in names if (parts := self._server.parts(name))]
        names = [which.name for which in self._histories if which.name not in by_name and not which.is_sum]
        labels = [label for name in names if (label := label_of_family(by_name, name)) is not None]
        return {_which(each): each for each in (*by_name.values(), *sums, *labels)}

    def for_counter(self, counter: Readable) -> History:
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


def _parts_of(counter: Readable) -> frozenset[MessageCount]:
    """One object for each, until it is deleted."""
    return frozenset(part.traffic for part in counter.parts or [counter])


def _doubles(lower: float, upper: float) -> tuple[float, float]:
    """Bounds as doubles, rounded to the outside: totals above 2^53 may be none."""
    least, most = float(lower), float(upper)
    return least if least <= lower else nextafter(least, -inf), most if most >= upper else nextafter(most, inf)


def _which(counter: Readable) -> _Which:
    return _Which(counter.name, bool(counter.parts))


def reachable_sites(answer: AnyAnswer) -> int:
    return answer.sites - len(answer.silent)
