"""The coordinator of Countless: a real `countless serve` in a process of its own, and what an operator asks it."""

import os
import signal
import subprocess
import sys
from http.client import HTTPConnection
from json import loads
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from countless.client.transport.endpoint import Endpoint
from race.contestants.base import Backend, Bill, Case, name_of

_IN_MEMORY = Path("/dev/shm")  # noqa: S108  # virtual time does not wait for a disk


class CoordinatorBackend(Backend):
    """`countless serve`."""

    def __init__(self, case: Case, scheme: str = "auto") -> None:
        self._folder = TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None)
        self._names = [name_of(counter) for counter in range(case.counters)]
        self._settings = {
            "COUNTLESS_STATE_DIR": self._folder.name,
            "COUNTLESS_SCHEME": scheme,
            "COUNTLESS_ALPHA": str(case.alpha),
            "COUNTLESS_DELTA": str(case.delta),
            "COUNTLESS_SILENT_AFTER": "23h",  # by the real clock; signs of life come at virtual times
        }
        self._port = "0"
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "countless.cli.main", "serve", "--port", self._port]
        environment = os.environ | self._settings
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603
        line = self._process.stdout.readline() if self._process.stdout else ""
        if "listening on" not in line:
            raise RuntimeError(f"countless serve did not start: {line!r}")
        self.address = line.split()[-1]
        self._port = self.address.rpartition(":")[2]

    @property
    def pid(self) -> int:
        """Of the coordinator's process."""
        return self._process.pid

    def total(self) -> int:
        """What is known of all sites: never more than the truth, and not an estimate."""
        questions = Questions(self.address)
        total = sum(int(questions.ask(name)["known"]) for name in self._names)
        questions.close()
        return total

    def kill(self) -> None:
        """What was said before is on its disk."""
        self._stop()
        self._start()

    def _stop(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def bill(self) -> Bill:
        """Measured by the sites."""
        return Bill(0, 0)

    def close(self) -> None:
        """Stop the process."""
        self._stop()
        self._folder.cleanup()


class Questions:
    """What an operator asks; not on any site's bill."""

    def __init__(self, url: str) -> None:
        place = Endpoint.parse(url)
        self._http = HTTPConnection(place.host, place.port)

    def ask(self, counter: str) -> dict[str, Any]:
        """The answer and what is behind it."""
        self._http.request("GET", f"/api/v1/operator/{counter}")
        answer: dict[str, Any] = loads(self._http.getresponse().read())
        return answer

    def close(self) -> None:
        """Hang up."""
        self._http.close()
