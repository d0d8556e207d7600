"""A real coordinator in a process of its own, that tests may kill; and a host without sockets, disk or clock."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time
from types import TracebackType
from typing import Any, Self

from countless.client.api import AnswerStream, ApiClient, ServiceError
from countless.server.sessions.session_table import Session
from countless.server.sessions.site_server import SiteServer
from countless.server.settings import Settings
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import DownItem, Hello, UpItem

PATIENCE = 20.0  # seconds until a test gives up; nothing here takes a tenth of it on an idle machine


def until(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Ask again and again, until the answer is true."""
    deadline = monotonic() + PATIENCE
    while True:
        try:
            result = condition()
        except ServiceError:  # not there yet
            result = None
        if result:
            return result
        if monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {PATIENCE:.0f} seconds")


def environment(**variables: str) -> dict[str, str]:
    """Of the processes that tests start. They start often: what was compiled once is kept, outside of the sources."""
    kept = Path(tempfile.gettempdir()) / f"countless-tests-{os.getuid()}"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPYCACHEPREFIX": str(kept), **variables}


class Server:
    """`countless serve` on loopback; `kill` and `start` again at will, on the same port and the same state."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self._options = options
        self._port = "0"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "countless.cli.main", "serve", "--port", self._port]
        command += ["--state-dir", str(self.directory), *self._options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "listening on" in line, line
        self.url = line.split()[-1]
        self._port = self.url.rpartition(":")[2]
        self.reader = ApiClient(self.url)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
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


class Watcher:
    """Follows the published total, across restarts too, and remembers whether it ever fell."""

    def __init__(self, server: Server, counter: str) -> None:
        self.seen: list[float] = []
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
                    self.seen.append(answer["estimate"])
            except ServiceError:
                continue

    def stop(self) -> None:
        self._done.set()
        while self._thread.is_alive():
            if self._stream is not None:
                self._stream.interrupt()
            self._thread.join(0.01)
        assert self.seen == sorted(self.seen)


def python(code: str, url: str, **variables: str) -> "subprocess.Popen[str]":
    """A program with a client, in a process of its own. It can be spoken to, line by line."""
    command, variables = [sys.executable, "-c", code], environment(COUNTLESS_URL=url, **variables)
    return subprocess.Popen(command, text=True, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class FakeConnection:
    """A connection that only remembers."""

    def __init__(self) -> None:
        self.got: list[DownItem] = []
        self.closed: str | None = None

    def send(self, items: list[DownItem]) -> None:
        self.got += items

    def close(self, code: int, reason: str) -> None:
        self.closed = reason


class Bench:
    """A host on a table: the clock is a number, the disk is memory, connections are lists."""

    def __init__(self, store: SqliteStore, wall_clock: Callable[[], float] = time, **settings: Any) -> None:
        self.time = 0.0
        self.store = store
        self.host = SiteServer(store, Settings(**settings), clock=lambda: self.time, wall_clock=wall_clock)

    async def connect(self, site: str, incarnation: int = 1) -> tuple[Session, FakeConnection]:
        line = FakeConnection()
        life = await self.host.on_hello(line, Hello(1, site, incarnation))
        assert life is not None
        return life, line

    async def say(self, life: Session, line: FakeConnection, *items: UpItem) -> list[DownItem]:
        """What is answered once it is on the disk."""
        line.got.clear()
        self.host.on_frame(life, line, list(items), 10)
        await self.host.flush()
        return list(line.got)

    async def wait(self, seconds: float) -> None:
        self.time += seconds
        self.host.tick()
        await self.host.flush()


@asynccontextmanager
async def bench(store: SqliteStore | None = None, **settings: Any) -> AsyncIterator[Bench]:
    table = Bench(store or SqliteStore(None), **settings)
    task = asyncio.create_task(table.host.run())
    try:
        yield table
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await table.host.stop()
