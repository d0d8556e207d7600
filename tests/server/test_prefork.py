"""A real gunicorn with `--preload`: workers are forked, one is killed, and every request is counted."""

import os
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from support.service import TIMEOUT_S, Server, environment, until

pytestmark = pytest.mark.slow

APPLICATION = """
import os
import countless
client = countless.connect(site="web")
requests = client.counter("hits")

def app(environ, start_response):
    requests.add()
    start_response("200 OK", [("content-type", "text/plain")])
    return [str(os.getpid()).encode()]
"""


def get(port: int) -> int:
    """The worker that answered."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/")
        return int(connection.getresponse().read())
    finally:
        connection.close()


def test_requests_of_gunicorn_workers_that_exit_or_are_killed_are_all_counted(server: Server, tmp_path: Path) -> None:
    (tmp_path / "web.py").write_text(APPLICATION)
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0", "web:app"]
    variables = environment(COUNTLESS_URL=server.url, COUNTLESS_CLIENT_STATE_DIR=str(tmp_path / "state"))
    web = subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True)
    try:
        assert web.stderr is not None
        port = next(int(line.split(":")[-1].split()[0]) for line in web.stderr if "Listening at" in line)
        workers = [get(port) for _ in range(200)]
        server.kill()  # what the workers count now is not reported when one of them is killed
        workers += [get(port) for _ in range(100)]
        os.kill(workers[-1], signal.SIGKILL)
        server.start()
        known = set(workers)

        def a_replacement_answers() -> bool:
            workers.append(get(port))
            return workers[-1] not in known

        until(a_replacement_answers, "an answer of its replacement")
        web.terminate()
        web.communicate(timeout=TIMEOUT_S)
    finally:
        if web.poll() is None:
            web.kill()
            web.communicate(timeout=TIMEOUT_S)
    until(lambda: server.inspect("hits")["known"] == len(workers), "every request is counted")
    assert list((tmp_path / "state").iterdir()) == []
