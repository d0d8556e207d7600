"""The coordinator of Countless: a real `countless serve` in its own process, and its operator view."""

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
from race.contestants.base import Backend, Case, counter_name

_IN_MEMORY = Path("/dev/shm")  # noqa: S108  # virtual time does not wait for a disk


class CoordinatorBackend(Backend):
    """`countless serve`."""

    def __init__(self, case: Case, scheme: str = "auto", *, real_time: bool = False) -> None:
        self._folder = TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() and not real_time else None)
        self._names = [counter_name(counter) for counter in range(case.counters)]
        self._settings = {
            "COUNTLESS_STATE_DIR": self._folder.name,
            "COUNTLESS_SCHEME": scheme,
            "COUNTLESS_ALPHA": str(case.alpha),
            "COUNTLESS_DELTA": str(case.delta),
            "COUNTLESS_SILENT_AFTER": "10s" if real_time else "23h",  # heartbeats may come at virtual times
        }
        self._port = "0"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "countless.cli.main", "serve", "--open", "--port", self._port]
        environment = os.environ | self._settings
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603
        line = self._process.stdout.readline() if self._process.stdout else ""
        if "listening on" not in line:
            raise RuntimeError(f"countless serve did not start: {line!r}")
        self.address = line.split()[-1]
        self._port = self.address.rpartition(":")[2]

    @property
    def pid(self) -> int:
        return self._process.pid

    def total(self) -> int:
        view = OperatorView(self.address)
        total = sum(int(view.get(name)["known"]) for name in self._names)
        view.close()
        return total

    def kill(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def close(self) -> None:
        self.stop()
        self._folder.cleanup()


class OperatorView:
    """The operator's view of a counter, over a connection that is not part of any site's traffic."""

    def __init__(self, url: str) -> None:
        place = Endpoint.parse(url)
        self._http = HTTPConnection(place.host, place.port)

    def get(self, counter: str) -> dict[str, Any]:
        self._http.request("GET", f"/api/v1/operator/{counter}")
        found: dict[str, Any] = loads(self._http.getresponse().read())
        return found

    def close(self) -> None:
        self._http.close()
