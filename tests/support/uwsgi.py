"""A real uWSGI with an application that counts and spends in its workers, and in its master before the fork."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from support.service import TIMEOUT_S, environment, until

WORKERS = 3
MODES = {
    "default": [],  # forks in C, without the hooks of Python
    "child's hook": ["--py-call-osafterfork"],
    "both hooks": ["--py-call-uwsgi-fork-hooks"],
    "lazy": ["--lazy-apps"],
}
APPLICATION = """
import logging, os
import countless
logging.basicConfig()
client = countless.connect(site="web")
hits, quota = client.counter("hits"), client.budget("quota")
for _ in range(int(os.environ["BEFORE"])):
    hits.add()
    quota.take(wait=90)
    client.flush(90)

def app(environ, start_response):
    allowed = quota.take(wait=0.5) if environ["PATH_INFO"] == "/take" else hits.add()
    start_response("200 OK", [("content-type", "text/plain")])
    return [f"{os.getpid()} {int(bool(allowed))}".encode()]
"""


class Response(NamedTuple):
    pid: int
    allowed: bool


class Uwsgi:
    """`before`: how often the module counts and takes a unit when it is loaded."""

    def __init__(
        self,
        directory: Path,
        url: str,
        mode: str,
        *options: str,
        before: int = 0,
        state_dir: Path | None = None,
        application: str = APPLICATION,
        **variables: str,
    ) -> None:
        (directory / "web.py").write_text(application)
        self._log = directory / "uwsgi.log"
        command = [str(Path(sys.executable).with_name("uwsgi")), "--http-socket", "127.0.0.1:0", "--master"]
        command += ["--processes", str(WORKERS), "--wsgi-file", "web.py", "--callable", "app", "--need-app"]
        command += [*MODES[mode], *options]
        kept = {} if state_dir is None else {"COUNTLESS_CLIENT_STATE_DIR": str(state_dir)}
        variables = environment(COUNTLESS_URL=url, BEFORE=str(before), **kept, **variables)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=directory, env=variables, stdout=log, stderr=log, start_new_session=True
            )
        self.port = int(until(lambda: re.search(r"127\.0\.0\.1:(\d+) \(port auto-assigned\)", self.log), "the port")[1])

    @property
    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str = "/") -> Response:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path)
            pid, allowed = connection.getresponse().read().split()
            return Response(int(pid), allowed == b"1")
        finally:
            connection.close()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)  # SIGTERM would start it again
        self.process.wait(TIMEOUT_S)

    @property
    def workers(self) -> list[int]:
        """The processes of those that run."""
        master = self.process.pid
        return [int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()]

    def kill(self) -> None:
        """With its workers."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(TIMEOUT_S)
