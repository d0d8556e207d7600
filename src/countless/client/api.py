"""The coordinator's JSON API over plain HTTP requests: for the command line, and for programs that read answers."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR
from typing import Any
from urllib.parse import quote, urlencode

from countless.client.transport.endpoint import Endpoint, find_token, no_coordinator, port_hint
from countless.errors import InvalidParameter, ServiceError
from countless.tls import client_tls_context
from countless.token_file import token_problem
from countless.wire.keys import validate_name

MAX_TIMEOUT_S = 86_400
_NEEDED = re.compile(r"a token of scope (\w+).* is needed")  # as the coordinator answers


class AnswerStream:
    """Answers as they arrive. One thread iterates; another may `interrupt` it."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self._socket = connection.sock

    def __iter__(self) -> "AnswerStream":
        return self

    def __next__(self) -> dict[str, Any]:
        try:
            while line := self._response.readline():
                if line.startswith(b"data: "):
                    answer: dict[str, Any] = json.loads(line[6:])
                    return answer
        except (OSError, ValueError, HTTPException) as error:
            self.close()
            raise ServiceError(f"connection lost: {error}") from error
        self.close()
        raise StopIteration

    def close(self) -> None:
        """For the thread that iterates."""
        self._response.close()
        self._connection.close()

    def interrupt(self) -> None:
        """For other threads: the iteration ends."""
        with suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(SHUT_RDWR)


class ApiClient:
    """Every failure is a `ServiceError`. The token is looked up for each request: see `find_token`."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 10.0) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT_S:
            raise InvalidParameter("timeout", timeout, f"a number of seconds above 0, at most {MAX_TIMEOUT_S}")
        self._endpoint = Endpoint.parse(url)
        self._token = token
        self._timeout = timeout

    def counters(self) -> Iterator[dict[str, Any]]:
        """All counters with their answers, page by page."""
        return self._pages("counters")

    def budgets(self) -> Iterator[dict[str, Any]]:
        """All budgets with what is known of their use, page by page."""
        return self._pages("budgets")

    def _pages(self, items: str) -> Iterator[dict[str, Any]]:
        after: str | None = ""
        while after is not None:
            page = self.request("GET", f"/api/v1/{items}?after={quote(after, safe='')}")
            yield from page[items]
            after = page["next"]

    def answer(self, counter: str, **query: str) -> dict[str, Any]:
        """The total; with `rolling` the count of the last so many minutes; with `window` that of a span with a name."""
        path = f"/api/v1/counters/{_quoted(counter)}"
        answer: dict[str, Any] = self.request("GET", f"{path}?{urlencode(query)}" if query else path)
        return answer

    def top(self, counter: str, **query: str) -> dict[str, Any]:
        """The labelled series of a counter with a `share` of its count; of a `window`, or `rolling`."""
        answer: dict[str, Any] = self.request("GET", f"/api/v1/top/{_quoted(counter)}?{urlencode(query)}")
        return answer

    def quantiles(self, distribution: str, *shares: str, window: str | None = None) -> dict[str, Any]:
        """Values of a distribution with these shares of all observations at or below them; of a `window`."""
        query = urlencode([*(("q", share) for share in shares), *([] if window is None else [("window", window)])])
        answer: dict[str, Any] = self.request("GET", f"/api/v1/quantiles/{_quoted(distribution)}?{query}")
        return answer

    def watch(self, counter: str, read_timeout: float | None = None) -> AnswerStream:
        """The answer now, and each time it changes; an error if nothing arrives for `read_timeout` seconds."""
        connection, response = self._open("GET", f"/api/v1/watch/{_quoted(counter)}", None)
        if connection.sock is not None:
            connection.sock.settimeout(read_timeout)
        return AnswerStream(connection, response)

    def request(self, method: str, path: str, body: object = None) -> Any:
        connection, response = self._open(method, path, body)
        data = _read(connection, response)
        return json.loads(data) if data else None

    def _open(self, method: str, path: str, body: object) -> tuple[HTTPConnection, HTTPResponse]:
        host, port = self._endpoint.host, self._endpoint.port
        if self._endpoint.secure:
            try:
                tls = client_tls_context()
            except OSError as error:
                raise ServiceError(str(error)) from None
            connection: HTTPConnection = HTTPSConnection(host, port, timeout=self._timeout, context=tls)
        else:
            connection = HTTPConnection(host, port, timeout=self._timeout)
        try:
            token, source = find_token(self._endpoint, self._token)
        except InvalidParameter as error:
            raise ServiceError(str(error)) from None
        headers = {"accept": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
        except (OSError, UnicodeError, HTTPException) as error:
            connection.close()
            base = self._endpoint.base
            if isinstance(error, TimeoutError):
                hint = port_hint(self._endpoint)
                raise ServiceError(f"no response from {base} within {self._timeout:g} s{hint}") from error
            raise ServiceError(no_coordinator(self._endpoint, base, error)) from error
        if response.status >= 400:
            problem = _read(connection, response).decode(errors="replace")
            text = _message(problem) or f"the coordinator answered with status {response.status}"
            if response.status == 401 and (needed := _NEEDED.fullmatch(text)):
                text = token_problem(needed[1], token, source)
            raise ServiceError(text, response.status)
        return connection, response


def _read(connection: HTTPConnection, response: HTTPResponse) -> bytes:
    try:
        return response.read()
    except (OSError, HTTPException) as error:
        raise ServiceError(f"connection lost: {error}") from error
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return quote(validate_name(name, "name"))


def _message(problem: str) -> str | None:
    try:
        found = json.loads(problem)
        return str(found["error"]) if "error" in found else ", ".join(found["problems"])  # those of /readyz
    except (ValueError, KeyError, TypeError):
        return None
