"""Redis: a real redis-server, and redis-py with one connection for each site.

One INCR for each event, or one flush a second: INCRBY for every counter that a site has raised, in one pipeline. The
server saves by its default rules (`save 3600 1 300 100 60 10000`), followed here in virtual time.
"""

import shutil
import socket
import subprocess
from collections import Counter as Tally
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import redis

from countless.errors import InvalidParameter
from race.contestants.base import Answers, Backend, Case, Contestant, Fleet, Traffic, counter_name
from race.waiting import until
from race.wire import ASIDE, bytes_of, free_port
from race.workloads import Event

_SAVES = ((3600, 1), (300, 100), (60, 10_000))  # seconds since the last save, changes since then


class RedisServer(Backend):
    """The server process."""

    def __init__(self, case: Case, *, append_only: bool = False) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise InvalidParameter("redis-server", "not found", "on the PATH (requirements/system.sh installs it)")
        self._program = program
        self._names = [counter_name(counter) for counter in range(case.counters)]
        self._folder = TemporaryDirectory()
        self._port = free_port()
        self._append_only = "yes" if append_only else "no"
        self._saved = 0.0
        self.address = str(self._port)
        self.start()

    def start(self) -> None:
        command = [self._program, "--bind", "127.0.0.1", "--port", str(self._port), "--save", ""]
        command += ["--dir", self._folder.name, "--daemonize", "no", "--loglevel", "warning"]
        command += ["--appendonly", self._append_only, "--appendfsync", "always"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603
        self._client = redis.Redis(port=self._port)
        until(self._answers, "redis-server")

    def _answers(self) -> bool:
        try:
            return bool(self._client.ping())
        except redis.ConnectionError:
            return False

    def tick(self, now: float) -> Answers:
        with ASIDE.aside():
            info: dict[str, Any] = self._client.info("persistence")
            changes = int(info["rdb_changes_since_last_save"])
            if any(now - self._saved > seconds and changes >= least for seconds, least in _SAVES):
                self._client.save()
                self._saved = now
            values: list[Any] = self._client.mget(self._names)
            return [(counter, float(value or 0)) for counter, value in enumerate(values)]

    def total(self) -> int:
        values: list[Any] = self._client.mget(self._names)
        return sum(int(value or 0) for value in values)

    def kill(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        self._client.close()
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.stop()
        self._folder.cleanup()


class RedisFleet(Fleet):
    """One connection for each site."""

    def __init__(self, address: str, case: Case) -> None:
        self._clients = [redis.Redis(port=int(address)) for _ in range(case.sites)]
        self._messages = 0

    def traffic(self) -> Traffic:
        return Traffic(self._messages, sum(map(bytes_of, _sockets(self._clients))))

    def close(self) -> None:
        for client in self._clients:
            client.close()


class IncrFleet(RedisFleet):
    """One round trip for each event and counter."""

    def count(self, event: Event) -> Answers:
        client = self._clients[event.site]
        self._messages += len(event.counters)
        return [(counter, float(client.incr(counter_name(counter)))) for counter in event.counters]


class DeltaFleet(RedisFleet):
    """Counts locally; once a second a site sends what it has."""

    def __init__(self, address: str, case: Case) -> None:
        super().__init__(address, case)
        self._deltas: dict[int, Tally[int]] = {}

    def count(self, event: Event) -> Answers:
        delta = self._deltas.get(event.site)
        if delta is None:
            delta = self._deltas[event.site] = Tally()
        for counter in event.counters:
            delta[counter] += 1
        return []

    def tick(self, now: float) -> None:
        for site, delta in self._deltas.items():
            pipeline = self._clients[site].pipeline(transaction=False)
            for counter, n in delta.items():
                pipeline.incrby(counter_name(counter), n)
            pipeline.execute()
            self._messages += 1
        self._deltas.clear()


def _sockets(clients: list[redis.Redis]) -> Iterator[socket.socket]:
    for client in clients:  # each uses one connection at a time, so its pool has at most one
        for connection in client.connection_pool._available_connections:
            yield connection._sock


INCR = Contestant("Redis INCR", RedisServer, IncrFleet, 1.0)
DELTAS = Contestant("Redis, 1 s deltas", RedisServer, DeltaFleet, 1.0)
