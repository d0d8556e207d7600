"""A run: one contestant, one workload, virtual time. Requests come one after the other, as fast as they are decided.

Messages that no request waits for need time. So a workload whose requests depend on them (`real_time`) is played by the
real clock, if the fleet has such messages.
"""

import gc
import heapq
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from time import monotonic, perf_counter_ns, sleep

from race.limits.contestants.base import Case, Contestant, Fleet, Outcome, Server
from race.limits.judge import Judge, Units
from race.limits.workloads import Request, Workload
from race.wire import traffic_to


@dataclass(frozen=True, slots=True)
class Result:
    """One row of a table."""

    contestant: str
    workload: str
    sites: int
    limit: int
    offered: int  # requests
    spent: int  # units
    over: int
    first_refusal: int | None
    wrong_refusals: int
    undecided: int
    messages: int
    bytes: int
    p50_us: float
    p99_us: float
    longest_us: float
    decided_away: int  # decisions while the server was away
    offered_away: int


class Meter:
    """Messages and bytes between the sites and their server, which may be replaced. The race's own are not counted."""

    def __init__(self, server: Server) -> None:
        self._port = int(server.address.rpartition(":")[2])
        self.messages = self.bytes = 0
        self.start()

    def start(self) -> None:
        self._before = traffic_to(self._port)

    def stop(self) -> None:
        """Before connections are closed."""
        messages, size = traffic_to(self._port)
        self.messages += messages - self._before[0]
        self.bytes += size - self._before[1]


class Player:
    """Advances virtual time for a fleet and its server."""

    def __init__(self, fleet: Fleet, server: Server, meter: Meter, workload: Workload, period: float | None) -> None:
        self.judge = Judge(workload.limit)
        self.latencies = array("q")  # nanoseconds
        self.undecided = self.decided_away = self.offered_away = 0
        self._fleet = fleet
        self._server = server
        self._meter = meter
        self._workload = workload
        self._away = False
        self._begin = monotonic() if workload.real_time and fleet.asynchronous else None
        self._order = count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        if workload.away is not None:
            self._at(workload.away[0], self._kill_server)
            self._at(workload.away[1], self._start_server)
        if period is not None:
            self._schedule_tick(1, period)

    def play(self) -> None:
        for request in self._workload.requests:
            self._advance(request.time)
            self._sleep_until(request.time)
            self._decide(request)
        self._advance(self._workload.end)

    def _decide(self, request: Request) -> None:
        fleet = self._fleet
        begin = perf_counter_ns()
        if request.until is None:
            outcome = fleet.take(request.site, request.units)
        else:
            outcome = fleet.reserve(request)
        self.latencies.append(perf_counter_ns() - begin)
        decided = outcome is not Outcome.UNDECIDED
        self.undecided += not decided
        if self._away:
            self.offered_away += 1
            self.decided_away += decided
        if outcome is Outcome.ALLOWED:
            self._settle_later(request, self.judge.allow(request), fleet)
        elif outcome is Outcome.REFUSED:
            self._settle_later(request, self.judge.refuse(request), None)

    def _settle_later(self, request: Request, units: Units | None, fleet: Fleet | None) -> None:
        if request.until is None or units is None:
            return

        def settle() -> None:
            self.judge.settle(request, units)
            if fleet is not None:
                fleet.settle(request)

        self._at(request.until, settle)

    # What happens at its time

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time, next(self._order), action))

    def _advance(self, now: float) -> None:
        while self._agenda and self._agenda[0][0] <= now:
            time, _, action = heapq.heappop(self._agenda)
            self._sleep_until(time)
            action()

    def _sleep_until(self, time: float) -> None:
        if self._begin is not None:
            sleep(max(0.0, self._begin + time - monotonic()))

    def _schedule_tick(self, number: int, period: float) -> None:
        def tick() -> None:
            self._fleet.tick()
            self._schedule_tick(number + 1, period)

        self._at(number * period, tick)

    def _kill_server(self) -> None:
        self._away = True
        self._meter.stop()
        self._server.stop()
        self._fleet.set_away(True)

    def _start_server(self) -> None:
        self._server.start()
        self._away = False
        self._meter.start()
        self._fleet.set_away(False)


def run(contestant: Contestant, server: Server, workload: Workload, name: str) -> Result:
    """`name` is that of the limit; a server keeps the limits of earlier runs."""
    meter = Meter(server)
    gc.collect()
    with contestant.fleet(server.address, Case(name, workload.sites, workload.limit)) as fleet:
        player = Player(fleet, server, meter, workload, contestant.period)
        player.play()
        meter.stop()
    judge, latencies = player.judge, sorted(player.latencies)
    return Result(
        contestant.name,
        workload.name,
        workload.sites,
        workload.limit,
        len(workload.requests),
        judge.admitted.spent,
        judge.over,
        judge.first_refusal,
        judge.wrong_refusals,
        player.undecided,
        meter.messages,
        meter.bytes,
        latencies[len(latencies) // 2] / 1000,
        latencies[len(latencies) * 99 // 100] / 1000,
        latencies[-1] / 1000,
        player.decided_away,
        player.offered_away,
    )
