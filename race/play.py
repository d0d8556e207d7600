"""A run: one contestant, one workload, virtual time."""

import gc
import time
from dataclasses import dataclass

from race.contestants.base import Backend, Bill, Case, Contestant, Fleet, News
from race.judge import Judge
from race.wire import ASIDE
from race.workloads import Event, Workload


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table."""

    contestant: str
    workload: str
    events: int  # counted: under a quota, those that were let in
    answer: float  # at the end, over all counters
    messages: int
    signs: int
    bytes: int
    dropped: int
    worst_error: float
    late_error: float
    worst_age: float
    cpu_seconds_per_million: float
    over_quota: float | None  # the most that was let in too much, as a part of the whole quota


class Player:
    """Moves virtual time on, for a fleet and its backend."""

    def __init__(self, fleet: Fleet, backend: Backend, workload: Workload, period: float) -> None:
        self.judge = Judge(workload.counters, workload.seconds / 2)
        self.over_quota = 0.0
        self._fleet = fleet
        self._backend = backend
        self._workload = workload
        self._period = period
        self._ticks = 0
        self._events = iter(workload)
        self._next = next(self._events, None)

    def play(self, until: float | None = None) -> None:
        """All events up to a moment, and the ticks before it; without one, to the end."""
        end = self._workload.seconds if until is None else until
        while self._next is not None and self._next.time <= end:
            self._tick_until(self._next.time)
            self._event(self._next)
            self._next = next(self._events, None)
        self._tick_until(end)
        for counter in range(self._workload.counters):
            self.judge.wait(end, counter)

    def _event(self, event: Event) -> None:
        judge, quota = self.judge, self._workload.quota * event.time
        if quota and judge.answers[0] >= quota:
            return
        for counter in event.counters:
            judge.wait(event.time, counter)
            judge.happen(event.time, counter)
        self._hear(self._fleet.count(event))
        for counter in event.counters:
            judge.look(event.time, counter)
        if quota:
            self.over_quota = max(self.over_quota, (judge.truth[0] - quota) / self._quota_in_all)

    @property
    def _quota_in_all(self) -> float:
        return self._workload.quota * self._workload.seconds

    def _tick_until(self, now: float) -> None:
        while (self._ticks + 1) * self._period <= now:
            self._ticks += 1
            self.tick(self._ticks * self._period)

    def tick(self, now: float) -> None:
        """Timers go off, on both sides."""
        for counter in range(self._workload.counters):
            self.judge.wait(now, counter)
        self._fleet.tick(now)
        self._hear(self._backend.tick(now))

    def _hear(self, news: News) -> None:
        for counter, answer in news:
            self.judge.hear(counter, answer)


class NoFleet(Fleet):
    """Counts nothing: what is left is what the race itself costs."""

    def count(self, event: Event) -> News:
        """Look away."""
        return []

    def bill(self) -> Bill:
        """Free."""
        return Bill(0, 0)

    def close(self) -> None:
        """Nothing to close."""


class NoBackend(Backend):
    """Knows nothing."""

    def total(self) -> int:
        """None."""
        return 0

    def kill(self) -> None:
        """Nothing to kill."""

    def bill(self) -> Bill:
        """Free."""
        return Bill(0, 0)

    def close(self) -> None:
        """Nothing to close."""


def run(contestant: Contestant, workload: Workload, case: Case) -> Result:
    """The whole workload; then the bill."""
    overhead = _overhead(workload, contestant.period)
    with contestant.backend(case) as backend, contestant.fleet(backend.address, case) as fleet:
        backend.targets = fleet.targets
        player = Player(fleet, backend, workload, contestant.period)
        cpu = _cpu(player)
        ours, theirs = fleet.bill(), backend.bill()
    judge = player.judge
    return Result(
        contestant.name,
        workload.name,
        judge.total,
        sum(judge.answers),
        ours.messages + theirs.messages,
        ours.signs + theirs.signs,
        ours.bytes + theirs.bytes,
        ours.dropped + theirs.dropped,
        judge.worst_error,
        judge.late_error,
        judge.worst_age,
        max(0.0, cpu - overhead) / max(1, judge.total) * 1e6,
        player.over_quota if workload.quota else None,
    )


def _overhead(workload: Workload, period: float) -> float:
    return _cpu(Player(NoFleet(), NoBackend(), workload, period))


def _cpu(player: Player) -> float:
    """CPU seconds of this process, without the time in which it only looked on."""
    gc.collect()
    begin, aside = time.process_time(), ASIDE.seconds
    player.play()
    return time.process_time() - begin - (ASIDE.seconds - aside)
