"""The fleet of `countless demo --keep`: a coordinator, and workers with sites."""

import json
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

from countless.client.api import ApiClient
from countless_lab.demo.processes import DemoFailed, Processes

COUNTER = "requests"


class Fleet(Processes):
    """`with Fleet(200, 8, alpha) as fleet:` starts a coordinator and 200 sites in 8 processes."""

    def __init__(self, sites: int, processes: int, alpha: float, port: int = 0) -> None:
        super().__init__(alpha, port)
        self.sites = sites
        self.total = 0
        self._share = -(-sites // processes)
        self._workers: list[subprocess.Popen[str]] = []

    def _start(self) -> None:
        super()._start()
        self._reader = ApiClient(self.url)
        for first in range(0, self.sites, self._share):
            number = min(self._share, self.sites - first)
            self._workers.append(self.spawn("countless_lab.demo.worker", self.url, COUNTER, str(first), str(number)))
        for worker in self._workers:
            self.line(worker, "a worker")

    def kill_coordinator(self) -> None:
        """As `kill -9` does."""
        self._coordinator.kill()
        self._coordinator.wait()

    def add(self, events: Iterable[tuple[int, int]], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Add events, (site, number); returns when the coordinator has stored the reports that they caused."""
        batches: dict[int, list[tuple[int, int]]] = {}
        for site, n in events:
            batches.setdefault(site // self._share, []).append((site, n))
            self.total += n
        for index, batch in batches.items():
            print(json.dumps(batch), file=self._workers[index].stdin, flush=True)
        meanwhile()
        for index in batches:
            if self.line(self._workers[index], "a worker").strip() != "done":
                raise DemoFailed("no answer from the coordinator within 10 seconds")

    def answer(self) -> dict[str, Any]:
        """The published answer, after a synchronisation that may be in progress."""
        while (answer := self._reader.answer(COUNTER))["state"] == "learning":
            pass
        return answer
