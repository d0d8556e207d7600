"""The processes of the demo: a coordinator and workers with sites, on loopback, stopped at the end."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any

from countless.client.api import ApiClient
from countless.errors import CountlessError

COUNTER = "requests"


class DemoFailed(CountlessError):
    """A process of the demo ended or did not answer."""


class Fleet:
    """`with Fleet(200, 8, alpha) as fleet:` starts a coordinator and 200 sites in 8 processes."""

    def __init__(self, sites: int, processes: int, alpha: float, port: int = 0) -> None:
        self.sites = sites
        self.alpha = alpha
        self.total = 0
        self._port = port
        self._share = -(-sites // processes)
        self._workers: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()
        # Signal handlers run in the main thread: none can end a start in this one, between the process and its record.
        # A signal may end the start of the thread itself, so it is started before there is anything to clean up.
        self._starter = ThreadPoolExecutor(1)
        self._starter.submit(int).result()
        self._state_dir = ""

    def __enter__(self) -> "Fleet":
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._starter.shutdown(cancel_futures=True)
        self._stack.close()

    def _start(self) -> None:
        self._state_dir = self._starter.submit(self._make_directory).result()
        self.start_coordinator()
        self._reader = ApiClient(self.url)
        for first in range(0, self.sites, self._share):
            number = min(self._share, self.sites - first)
            self._workers.append(self._spawn("countless.demo.worker", self.url, COUNTER, str(first), str(number)))
        for worker in self._workers:
            self._line(worker, "a worker")

    def _make_directory(self) -> str:
        return self._stack.enter_context(tempfile.TemporaryDirectory(prefix="countless-demo-"))

    def start_coordinator(self) -> None:
        options = ["--port", str(self._port), "--state-dir", self._state_dir, "--alpha", str(self.alpha)]
        self._coordinator = self._spawn("countless.cli.main", "serve", "--open", "--log-level", "error", *options)
        self.url = self._line(self._coordinator, "the coordinator").split()[-1]
        self._port = int(self.url.rpartition(":")[2])

    def kill_coordinator(self) -> None:
        """As `kill -9` does."""
        self._coordinator.kill()
        self._coordinator.wait()

    def _spawn(self, module: str, *arguments: str) -> "subprocess.Popen[str]":
        return self._starter.submit(self._popen, module, *arguments).result()

    def _popen(self, module: str, *arguments: str) -> "subprocess.Popen[str]":
        # In a session of its own: Ctrl-C reaches the demo only, which then stops the others.
        process = subprocess.Popen(  # noqa: S603 - our own modules
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._stack.callback(_end, process)
        return process

    @staticmethod
    def _line(process: "subprocess.Popen[str]", who: str) -> str:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise DemoFailed(f"{who} ended with code {process.wait()}; its output is above")
        return line

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
            if self._line(self._workers[index], "a worker").strip() != "done":
                raise DemoFailed("no answer from the coordinator within 10 seconds")

    def answer(self) -> dict[str, Any]:
        """The published answer, after a synchronisation that may be in progress."""
        while (answer := self._reader.answer(COUNTER))["state"] == "learning":
            pass
        return answer


def _end(process: "subprocess.Popen[str]") -> None:
    """Nothing of the demo is kept, so no process needs time to deliver or to save."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # a line that was not written yet
                pipe.close()
    process.wait()
