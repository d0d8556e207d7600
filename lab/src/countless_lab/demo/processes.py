"""Processes that the demo starts on loopback: a coordinator and others, killed when the demo ends."""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from countless.errors import CountlessError


class DemoFailed(CountlessError):
    """A process of the demo ended or did not answer."""


class Processes:
    """`with` starts them, and ends all of them, whatever happens. Subclasses start more than the coordinator."""

    def __init__(self, alpha: float = 0.01, port: int = 0) -> None:
        self.alpha = alpha
        self._port = port
        self._stack = ExitStack()
        # Signal handlers run in the main thread: none can end a start in this one, between the process and its record.
        # A signal may end the start of the thread itself, so it is started before there is anything to clean up.
        self._starter = ThreadPoolExecutor(1)
        self._starter.submit(int).result()
        self.directory = ""

    def __enter__(self) -> Self:
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
        self.directory = self._starter.submit(self._make_directory).result()
        self.start_coordinator()

    def _make_directory(self) -> str:
        return self._stack.enter_context(tempfile.TemporaryDirectory(prefix="countless-demo-"))

    def start_coordinator(self) -> None:
        """Its log, which has an entry for everything that the demo creates, does not belong into the demo's output."""
        log = Path(self.directory) / "coordinator.log"
        options = ["--port", str(self._port), "--state-dir", self.directory, "--alpha", str(self.alpha)]
        with log.open("a", encoding="utf-8") as errors:
            self._coordinator = self.spawn("countless.cli.main", "serve", "--open", *options, errors=errors)
        try:
            self.url = self.line(self._coordinator, "the coordinator").split()[-1]
        except DemoFailed as failed:
            reason = log.read_text(encoding="utf-8").rstrip().rpartition("\n")[2]
            raise DemoFailed(f"{failed}: {reason}") from None
        self._port = int(self.url.rpartition(":")[2])

    def spawn(self, module: str, *arguments: str, errors: IO[str] | None = None) -> "subprocess.Popen[str]":
        return self._starter.submit(self._popen, module, arguments, errors).result()

    def _popen(self, module: str, arguments: tuple[str, ...], errors: IO[str] | None) -> "subprocess.Popen[str]":
        # In a session of its own: Ctrl-C reaches the demo only, which then stops the others.
        process = subprocess.Popen(  # noqa: S603 - our own modules
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        self._stack.callback(_end, process)
        return process

    @staticmethod
    def line(process: "subprocess.Popen[str]", who: str) -> str:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise DemoFailed(f"{who} ended with code {process.wait()}")
        return line


def _end(process: "subprocess.Popen[str]") -> None:
    """Nothing of the demo is kept, so no process needs time to deliver or to save."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # a line that was not written yet
                pipe.close()
    process.wait()
