"""`countless` in processes of their own, which start in a quarter of the time that an interpreter and its imports take.

They are forked from a process that has imported the command. A few tests start it as a shell does: `cli/`, `docs/`.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import IO

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        *("countless.cli.main", "countless.cli.serve", "countless.cli.agent", "countless.server.serve"),
        *("countless.agent.run", "countless.agent.app", "countless.server.http.sockets.fast_websocket"),
        *("uvicorn.loops.uvloop", "uvicorn.lifespan.on", "nats.aio.client", "pydantic.type_adapter"),
    ]
)


class ForkedCommand:
    """`countless ARGUMENTS`; as far as tests use it, `subprocess.Popen` with pipes for both outputs."""

    def __init__(self, arguments: list[str], variables: Mapping[str, str], errors: bool = False) -> None:
        """Without `errors` the standard error is the one of the tests."""
        self.stdout, output = _pipe()
        self._errors: IO[str] | None = None
        if errors:
            self._errors, error_output = _pipe()
        else:
            error_output = Connection(os.dup(2), readable=False)
        self._process = _processes.Process(
            target=_run, args=(arguments, dict(variables), output, error_output), daemon=True
        )
        self._process.start()
        output.close()
        error_output.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("countless", timeout)
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Outputs that fill a pipe are not expected."""
        self.wait(timeout)
        with self.stdout:
            output = self.stdout.read()
        if self._errors is None:
            return output, ""
        with self._errors:
            return output, self._errors.read()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _pipe() -> tuple[IO[str], Connection]:
    reader, writer = os.pipe()
    return os.fdopen(reader), Connection(writer, readable=False)


def _run(arguments: list[str], variables: dict[str, str], output: Connection, errors: Connection) -> None:
    from countless.cli.main import main

    for stream, number in ((output, 1), (errors, 2)):
        os.dup2(stream.fileno(), number)
        stream.close()
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["countless", *arguments]
    main()
