"""A real coordinator, and programs with a client, in processes of their own that tests may kill."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Any, Self

from countless.client.api import AnswerStream, ApiClient
from countless.errors import ServiceError
from countless.token_file import OPERATOR_TOKEN_FILE, read_token
from support.forked import ForkedCommand

TIMEOUT_S = 90.0  # many times what anything here takes, also on a busy machine
POLL_S = 0.005


def until(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Poll until the condition is true, and return its value.

    It waits between polls, because most conditions are requests, and the processes under test need the processor.
    """
    deadline, pause = monotonic() + TIMEOUT_S, Event()
    while True:
        try:
            result = condition()
        except ServiceError:  # the coordinator, or the counter, is not there yet
            result = None
        if result:
            return result
        if monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {TIMEOUT_S:.0f} seconds")
        pause.wait(POLL_S)


def environment(**variables: str) -> dict[str, str]:
    """For processes that tests start. They start often, so compiled files are kept, outside of the sources."""
    cache = Path(tempfile.gettempdir()) / f"countless-tests-{os.getuid()}"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPYCACHEPREFIX": str(cache), **variables}


class Server:
    """`countless serve` on loopback, `--open` unless it is `closed`; then its reader has the token of the first start.
    After `kill` or `stop`, `start` uses the same port and the same state.
    """

    def __init__(self, directory: Path, *options: str, closed: bool = False) -> None:
        self.directory = directory
        self._closed = closed
        self._options = options
        self._port = "0"
        self.start()

    def start(self) -> None:
        arguments = ["serve", "--port", self._port, "--state-dir", str(self.directory), *self._options]
        self.process = self._launch(arguments if self._closed else [*arguments, "--open"])
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "listening on" in line, line
        self.url = line.split()[-1]
        self._port = self.url.rpartition(":")[2]
        file = self.directory / OPERATOR_TOKEN_FILE
        self.reader = ApiClient(self.url, read_token(file) if self._closed and file.exists() else None)

    def _launch(self, arguments: list[str]) -> "ForkedCommand | subprocess.Popen[str]":
        return ForkedCommand(arguments, environment())

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def answer(self, counter: str) -> dict[str, Any]:
        return self.reader.answer(counter)

    def inspect(self, counter: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.reader.request("GET", f"/api/v1/operator/{counter}")
        return answer

    def sites(self) -> list[dict[str, Any]]:
        sites: list[dict[str, Any]] = self.reader.request("GET", "/api/v1/sites")["sites"]
        return sites

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()


def require_totals_do_not_fall(answers: list[dict[str, Any]]) -> None:
    """Except to the upper bound: an estimate is never above what is known."""
    for before, after in pairwise(answers):
        assert after["estimate"] >= before["estimate"] or after["upper"] - after["estimate"] < 1, (before, after)


class Watcher:
    """Follows the published total, across restarts too; `stop` checks that it never fell."""

    def __init__(self, server: Server, counter: str) -> None:
        self.seen: list[dict[str, Any]] = []
        self._server, self._counter = server, counter
        self._done = Event()
        self._stream: AnswerStream | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(0.01):
            try:
                self._stream = self._server.reader.watch(self._counter)
                for answer in self._stream:
                    self.seen.append(answer)
            except ServiceError:
                continue

    def stop(self) -> None:
        self._done.set()
        until(self._has_ended, "the watch ends")
        require_totals_do_not_fall(self.seen)

    def _has_ended(self) -> bool:
        if self._stream is not None:
            self._stream.interrupt()
        return not self._thread.is_alive()


def python(code: str, url: str, **variables: str) -> "subprocess.Popen[str]":
    """A program with a client, in a process of its own, with pipes to its standard input and output."""
    command, variables = [sys.executable, "-c", code], environment(COUNTLESS_URL=url, **variables)
    return subprocess.Popen(command, text=True, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
