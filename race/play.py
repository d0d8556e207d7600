"""A run: one contestant, one workload, virtual time."""

import gc
import time
from dataclasses import dataclass

from race.contestants.base import Answers, Backend, Case, Contestant, Fleet
from race.judge import Judge
from race.wire import ASIDE
from race.workloads import Event, Workload


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table."""

    contestant: str
    workload: str
    events: int  # counted; under a quota, those that were admitted
    answer: float  # at the end, over all counters
    messages: int
    heartbeats: int
    bytes: int
    dropped: int
    worst_error: float
    late_error: float
    worst_age: float
    cpu_seconds_per_million: float
    over_quota: float | None  # the most that was admitted beyond the quota, as a part of the whole quota


class Player:
    """Advances virtual time for a fleet and its backend."""

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
        """All events and ticks up to a virtual time, or to the end."""
        end = self._workload.seconds if until is None else until
        while self._next is not None and self._next.time <= end:
            self._tick_until(self._next.time)
            self._event(self._next)
            self._next = next(self._events, None)
        self._tick_until(end)
        for counter in range(self._workload.counters):
            self.judge.age_until(end, counter)

    def _event(self, event: Event) -> None:
        judge, quota = self.judge, self._workload.quota * event.time
        if quota and judge.answers[0] >= quota:
            return
        for counter in event.counters:
            judge.age_until(event.time, counter)
            judge.add_event(event.time, counter)
        self._set_answers(self._fleet.count(event))
        for counter in event.counters:
            judge.compare(event.time, counter)
        if quota:
            self.over_quota = max(self.over_quota, (judge.totals[0] - quota) / self._quota_in_all)

    @property
    def _quota_in_all(self) -> float:
        return self._workload.quota * self._workload.seconds

    def _tick_until(self, now: float) -> None:
        while (self._ticks + 1) * self._period <= now:
            self._ticks += 1
            self.tick(self._ticks * self._period)

    def tick(self, now: float) -> None:
        for counter in range(self._workload.counters):
            self.judge.age_until(now, counter)
        self._fleet.tick(now)
        self._set_answers(self._backend.tick(now))

    def _set_answers(self, answers: Answers) -> None:
        for counter, answer in answers:
            self.judge.set_answer(counter, answer)


class NoFleet(Fleet):
    """Counts nothing: measures the CPU time of the race itself."""

    def count(self, event: Event) -> Answers:
        return []


class NoBackend(Backend):
    def total(self) -> int:
        return 0

    def kill(self) -> None:
        pass


def run(contestant: Contestant, workload: Workload, case: Case) -> Result:
    overhead = _overhead(workload, contestant.period)
    with contestant.backend(case) as backend, contestant.fleet(backend.address, case) as fleet:
        backend.targets = fleet.targets
        player = Player(fleet, backend, workload, contestant.period)
        cpu = _cpu(player)
        ours, theirs = fleet.traffic(), backend.traffic()
    judge = player.judge
    return Result(
        contestant.name,
        workload.name,
        judge.total,
        sum(judge.answers),
        ours.messages + theirs.messages,
        ours.heartbeats + theirs.heartbeats,
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
    """CPU seconds of this process, without the race's own measurements."""
    gc.collect()
    begin, aside = time.process_time(), ASIDE.seconds
    player.play()
    return time.process_time() - begin - (ASIDE.seconds - aside)
