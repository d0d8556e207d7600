"""What Prometheus, OpenTelemetry and statsd have in common here: the collector process at the centre."""

import json
import socket
import subprocess
import sys
from collections import Counter as Tally
from contextlib import suppress
from pathlib import Path
from typing import Any

from race.contestants.base import Backend, Bill, Case, News, name_of
from race.waiting import until
from race.wire import ASIDE, free_port


class Questions:
    """A control connection to the collector."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connect()

    def _connect(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port))
        self._file = self._socket.makefile("rwb")

    def ask(self, verb: str, *arguments: object) -> Any:
        """One question, one answer. The race's own work: not in anybody's CPU time."""
        with ASIDE.aside():
            answer = self._exchange(verb, arguments)
            if not answer:  # the collector was killed, and there is another one
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
        """Hang up."""
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
            self._questions = Questions(self._ports[2])
        except ConnectionError:
            return False
        return True

    def kill(self) -> None:
        """Its memory is gone."""
        self.close()
        self._start()

    def close(self) -> None:
        """Stop the process."""
        self._questions.close()
        self._process.kill()
        self._process.wait()

    def ask(self, verb: str, *arguments: object) -> Any:
        """Of the collector."""
        return self._questions.ask(verb, *arguments)

    def news(self, totals: dict[str, int]) -> News:
        """Totals by name, as the judge wants them."""
        return [(counter, float(totals.get(name_of(counter), 0))) for counter in range(self._case.counters)]

    def total(self) -> int:
        """The sum over instances and counters."""
        return sum(self.ask("totals").values())

    def bill(self) -> Bill:
        """As the collector's sockets saw it."""
        return Bill(*self.ask("bill"))


class PushedBackend(CollectorBackend):
    """Sites push; between two pushes nothing is known."""

    def tick(self, now: float) -> News:
        """What has been pushed."""
        return self.news(self.ask("totals"))


class ScrapingBackend(CollectorBackend):
    """The collector asks every site."""

    def tick(self, now: float) -> News:
        """One scrape of each target."""
        self.ask("scrape", self.targets)
        return self.news(self.ask("totals"))


class FlushingBackend(CollectorBackend):
    """statsd sums up, and at each flush hands the sums to a database, which this object stands for."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._stored: Tally[str] = Tally()

    def tick(self, now: float) -> News:
        """A flush."""
        self._stored.update(self.ask("take"))
        return self.news(self._stored)

    def total(self) -> int:
        """What is in the database, after one more flush."""
        self._stored.update(self.ask("take"))
        return self._stored.total()
