"""What Prometheus, OpenTelemetry and statsd share: the collector process."""

import json
import socket
import subprocess
import sys
from collections import Counter as Tally
from contextlib import suppress
from pathlib import Path
from typing import Any

from race.contestants.base import Answers, Backend, Case, Traffic, counter_name
from race.waiting import until
from race.wire import ASIDE, free_port


class Control:
    """A control connection to the collector."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connect()

    def _connect(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port))
        self._file = self._socket.makefile("rwb")

    def ask(self, verb: str, *arguments: object) -> Any:
        """One request; its CPU time is not part of the contestant's."""
        with ASIDE.aside():
            answer = self._exchange(verb, arguments)
            if not answer:  # the collector was killed and restarted
                self.close()
                self._connect()
                answer = self._exchange(verb, arguments)
            return json.loads(answer)

    def _exchange(self, verb: str, arguments: tuple[object, ...]) -> bytes:
        try:
            self._file.write(json.dumps([verb, *arguments]).encode() + b"\n")
            self._file.flush()
            return self._file.readline()
        except ConnectionError:
            return b""

    def close(self) -> None:
        with suppress(ConnectionError):  # what could not be sent
            self._file.close()
        self._socket.close()


class CollectorBackend(Backend):
    """The collector process. Its address is `otlp:statsd:control`, three ports."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._ports = [free_port() for _ in range(3)]
        self.address = ":".join(map(str, self._ports))
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "race.collector", *map(str, self._ports)]
        self._process = subprocess.Popen(command, cwd=Path(__file__).parents[2])  # noqa: S603
        until(self._connected, "the collector")

    def _connected(self) -> bool:
        try:
            self._control = Control(self._ports[2])
        except ConnectionError:
            return False
        return True

    def kill(self) -> None:
        self.close()
        self._start()

    def close(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()

    def ask(self, verb: str, *arguments: object) -> Any:
        return self._control.ask(verb, *arguments)

    def answers(self, totals: dict[str, int]) -> Answers:
        """Totals by name, as answers by counter."""
        return [(counter, float(totals.get(counter_name(counter), 0))) for counter in range(self._case.counters)]

    def total(self) -> int:
        return sum(self.ask("totals").values())

    def traffic(self) -> Traffic:
        return Traffic(*self.ask("traffic"))


class PushedBackend(CollectorBackend):
    """Sites push; between two pushes nothing is known."""

    def tick(self, now: float) -> Answers:
        return self.answers(self.ask("totals"))


class ScrapingBackend(CollectorBackend):
    """The collector scrapes every site."""

    def tick(self, now: float) -> Answers:
        self.ask("scrape", self.targets)
        return self.answers(self.ask("totals"))


class FlushingBackend(CollectorBackend):
    """statsd adds up increments, and at each flush passes the sums to a database, which is this object."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._stored: Tally[str] = Tally()

    def tick(self, now: float) -> Answers:
        self._stored.update(self.ask("take"))
        return self.answers(self._stored)

    def total(self) -> int:
        self._stored.update(self.ask("take"))
        return self._stored.total()
