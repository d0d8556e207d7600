"""An application under a real uvicorn, in a process of its own that tests may kill."""

import json
import re
import signal
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from support.service import TIMEOUT_S, environment, until


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]  # by their names in lower case
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class UvicornApp:
    """`uvicorn module:app` on a port of loopback that the system chooses; `folder` has the module."""

    python = sys.executable

    def command(self, app: str, folder: Path) -> list[str]:
        return [self.python, "-m", "uvicorn", app, "--port", "0", "--app-dir", str(folder)]

    def __init__(self, app: str, folder: Path, log: Path, **variables: str) -> None:
        self.folder = folder
        self._log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                self.command(app, folder), env=environment(**variables), stdout=output, stderr=output
            )
        try:
            found = until(self._find_address, f"uvicorn {app} listens")
        except AssertionError:
            self.kill()
            raise
        self.url = found[0]
        self._address = found[1]

    def _find_address(self) -> re.Match[str] | None:
        if self.process.poll() is not None:
            raise AssertionError(self._log.read_text())
        return re.search(r"http://(127\.0\.0\.1:\d+)", self._log.read_text())

    def request(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        """Raises OSError or HTTPException if the process is gone."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(HTTPConnection(self._address, timeout=TIMEOUT_S)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), names)
            response = connection.getresponse()
            text = response.read().decode()
        return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, text)

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
