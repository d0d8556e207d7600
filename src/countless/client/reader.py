"""Reading answers: a few plain HTTP requests, for the command line and for programs that only look."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote

from countless.client.link import Place, tls_context
from countless.errors import CountlessError


class ServiceError(CountlessError):
    """The coordinator could not be asked, or said no; the message says why."""


class Reader:
    """The JSON API of a coordinator."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 10.0) -> None:
        self._place = Place.of(url)
        self._token = token
        self._timeout = timeout

    def counters(self) -> Iterator[dict[str, Any]]:
        """All counters with their answers."""
        after: str | None = ""
        while after is not None:
            page = self.ask("GET", f"/api/v1/counters?after={quote(after, safe='')}")
            yield from page["counters"]
            after = page["next"]

    def answer(self, counter: str) -> dict[str, Any]:
        """The public answer of a counter."""
        answer: dict[str, Any] = self.ask("GET", f"/api/v1/counters/{quote(counter)}")
        return answer

    def watch(self, counter: str) -> Iterator[dict[str, Any]]:
        """The answer now, and every time it changes."""
        connection, response = self._request("GET", f"/api/v1/watch/{quote(counter)}", None)
        try:
            for line in response:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        except (OSError, HTTPException) as error:
            raise ServiceError(f"the coordinator has hung up: {error}") from error
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request; what comes back as JSON."""
        connection, response = self._request(method, path, body)
        try:
            data = response.read()
        except (OSError, HTTPException) as error:
            raise ServiceError(f"the coordinator has hung up: {error}") from error
        finally:
            connection.close()
        return json.loads(data) if data else None

    def _request(self, method: str, path: str, body: object) -> tuple[HTTPConnection, HTTPResponse]:
        host, port = self._place.host, self._place.port
        if self._place.secure:
            connection: HTTPConnection = HTTPSConnection(host, port, timeout=self._timeout, context=tls_context())
        else:
            connection = HTTPConnection(host, port, timeout=self._timeout)
        waits_for_ever = path.startswith("/api/v1/watch/")
        headers = {"accept": "application/json"} | ({"authorization": f"Bearer {self._token}"} if self._token else {})
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
        except (OSError, HTTPException) as error:
            connection.close()
            raise ServiceError(f"no coordinator at {self._place.base}: {error}") from error
        if response.status >= 400:
            problem = response.read().decode(errors="replace")
            connection.close()
            raise ServiceError(_message(problem) or f"the coordinator says {response.status}")
        if waits_for_ever and connection.sock is not None:
            connection.sock.settimeout(None)
        return connection, response


def _message(problem: str) -> str | None:
    try:
        return str(json.loads(problem)["error"])
    except (ValueError, KeyError, TypeError):
        return None
