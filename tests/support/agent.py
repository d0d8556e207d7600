"""A real `countless agent` in a process of its own."""

import json
import signal
import socket
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any

from support.forked import ForkedCommand
from support.service import TIMEOUT_S, environment


class Agent:
    """An agent on loopback, on ports that the system chooses."""

    def __init__(self, url: str, *options: str, unix: Path | None = None) -> None:
        arguments = ["agent", "--url", url, "--statsd-port", "0", "--http-port", "0", *options]
        arguments += ["--statsd-socket", str(unix)] if unix else []
        self.unix = unix
        self.process = ForkedCommand(arguments, environment(), errors=True)
        line = self.process.stdout.readline()
        assert line.startswith("countless: listening on udp://"), line
        places = line.split()[3:]
        host, _, port = places[0].removeprefix("udp://").rpartition(":")
        self.statsd = (host.strip("[]"), int(port))
        self.http = next(place for place in places if place.startswith("http://")).removeprefix("http://")
        self.http_unix = next((place.removeprefix("http+unix:") for place in places if "http+unix:" in place), None)
        self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(self, *datagrams: bytes) -> None:
        for datagram in datagrams:
            self._sender.sendto(datagram, self.statsd)

    def request(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        connection = HTTPConnection(self.http, timeout=TIMEOUT_S)
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, json.loads(text) if "json" in response.headers["content-type"] else text

    def metrics(self) -> dict[str, float]:
        page: str = self.request("GET", "/metrics")[1]
        lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def stop(self) -> tuple[int | None, str]:
        """Send SIGTERM; the exit code and the standard error."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> tuple[int | None, str]:
        """The exit code and the standard error of a process that was told to stop."""
        _, errors = self.process.communicate(timeout=TIMEOUT_S)
        self._sender.close()
        return self.process.returncode, errors

    def __enter__(self) -> "Agent":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=TIMEOUT_S)
        self._sender.close()
