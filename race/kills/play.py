"""Three replicas behind one limit, minute after minute on the real clock, while the server and a replica are killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import time
from typing import Any, Protocol

import httpx2

from race.waiting import until
from race.wire import free_port

REPLICAS = 3
PER_MINUTE = 119  # requests that each replica is offered: two a second, and none in the last half second of a minute
MINUTES = 6
SERVER_KILLED_IN, REPLICA_KILLED_IN = 3, 5
KILLED_AT, SERVER_AWAY = 10.0, 5.0  # seconds
TIMEOUT_S = 4.0


class Server(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server that keeps the limit, and the web application that asks it."""

    name: str
    server: Server
    address: str
    application: str  # `module:factory`


@dataclass(slots=True)
class Minute:
    """What became of the requests of one minute."""

    admitted: int = 0
    refused: int = 0  # 429
    failed: int = 0  # 503, or no answer


@dataclass(slots=True)
class Result:
    contestant: str
    minutes: list[Minute] = field(default_factory=list)


class Replica:
    """A uvicorn process."""

    def __init__(self, contestant: Contestant) -> None:
        self._contestant = contestant
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "uvicorn", self._contestant.application, "--factory", "--log-level", "error"]
        environment = os.environ | {"SERVER": self._contestant.address}
        self._process = subprocess.Popen([*command, "--port", str(self._port)], env=environment)  # noqa: S603

    def answers(self) -> bool:
        try:
            return httpx2.get(f"{self.url}ready", timeout=TIMEOUT_S).is_success
        except httpx2.HTTPError:
            return False

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def play(contestants: Sequence[Contestant], minutes: int = MINUTES) -> list[Result]:
    """Play all contestants at the same time."""
    fleets = [[Replica(contestant) for _ in range(REPLICAS)] for contestant in contestants]
    try:
        for replica in (each for fleet in fleets for each in fleet):
            until(replica.answers, replica.url)
        return asyncio.run(_play(contestants, fleets, minutes))
    finally:
        for replica in (each for fleet in fleets for each in fleet):
            replica.kill()


async def _play(contestants: Sequence[Contestant], fleets: list[list[Replica]], minutes: int) -> list[Result]:
    begin = (time() // 60 + 1) * 60
    async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http, asyncio.TaskGroup() as group:
        runs = [
            group.create_task(_run(http, contestant, fleet, begin, minutes))
            for contestant, fleet in zip(contestants, fleets, strict=True)
        ]
    return [run.result() for run in runs]


async def _run(
    http: httpx2.AsyncClient, contestant: Contestant, fleet: list[Replica], begin: float, minutes: int
) -> Result:
    tallies: list[Counter[str]] = [Counter() for _ in range(minutes)]

    async def request(replica: Replica, minute: int) -> None:
        try:
            status = (await http.get(replica.url)).status_code
        except httpx2.HTTPError:
            status = 503
        tallies[minute][{200: "admitted", 429: "refused"}.get(status, "failed")] += 1

    def kills() -> list[tuple[float, Callable[[], None]]]:
        server = (SERVER_KILLED_IN - 1) * 60 + KILLED_AT
        replica = (REPLICA_KILLED_IN - 1) * 60 + KILLED_AT
        return [
            (server, contestant.server.stop),
            (server + SERVER_AWAY, contestant.server.start),
            (replica, fleet[0].kill),
            (REPLICA_KILLED_IN * 60.0, fleet[0].start),
        ]

    async with asyncio.TaskGroup() as group:
        for at, action in kills():
            if at < 60 * minutes:
                group.create_task(_at(begin + at, partial(asyncio.to_thread, action)))
        for minute in range(minutes):
            for number in range(PER_MINUTE):
                for index, replica in enumerate(fleet):
                    at = begin + 60 * minute + 0.2 + number / 2 + index / 10
                    group.create_task(_at(at, partial(request, replica, minute)))
    return Result(contestant.name, [Minute(**tally) for tally in tallies])


async def _at(moment: float, action: Callable[[], Awaitable[None] | Coroutine[Any, Any, None]]) -> None:
    await asyncio.sleep(max(0.0, moment - time()))
    await action()
