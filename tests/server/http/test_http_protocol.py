"""Clients that are slow or too many, against uvicorn's HTTP protocol with timers that a test fires."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from countless import http_protocol, unread
from support.waiting import eventually

HEADER = b"POST /add HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


MAX_BODY_BYTES = 1_000


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """As for a caller without a token: the body is not read."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


class Timers:
    """Of the loop: only those of LimitedHTTPProtocol are kept."""

    def __init__(self) -> None:
        self.pending: dict[object, Callable[[], None]] = {}
        self.create_task = asyncio.get_running_loop().create_task

    def call_later(self, seconds: float, call: Callable[[], None]) -> "Timer":
        timer = Timer(self)
        if seconds in (http_protocol.REQUEST_TIMEOUT_S, unread.UNREAD_TIMEOUT_S):
            self.pending[timer] = call
        return timer


class Timer:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def cancel(self) -> None:
        self._timers.pending.pop(self, None)


class Client:
    """A connection, and the transport that the protocol sees."""

    def __init__(self, address: str = "192.0.2.1", app: Any = echo) -> None:
        self.timers = Timers()
        self.aborted = False
        self.unread = 0
        self.written = b""
        self._address = address
        config = uvicorn.Config(app, ws="websockets-sansio", log_level="critical")
        config.load()
        protocol: Any = http_protocol.http_protocol(MAX_BODY_BYTES)
        self.protocol = self._present = protocol(config, ServerState(), {}, self.timers)
        self.protocol.connection_made(self)

    def get_extra_info(self, name: str) -> object:
        return {"peername": (self._address, 5), "sockname": ("127.0.0.1", 80)}.get(name)

    def get_protocol(self) -> object:
        return self._present

    def set_protocol(self, protocol: object) -> None:
        self._present = protocol

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    close = abort

    def write(self, data: bytes) -> None:
        self.written += data

    def resume_reading(self) -> None: ...

    def pause_reading(self) -> None: ...

    def set_write_buffer_limits(self, **_: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unread

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)

    async def responses(self, number: int) -> None:
        await eventually(lambda: self.written.count(b"HTTP/1.1 200") >= number)

    def wait(self) -> None:
        """Until the time for a request is over."""
        for call in list(self.timers.pending.values()):
            call()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEADER[:-3], HEADER, HEADER + b"abc"])
async def test_request_that_is_not_complete_in_time_ends_the_connection(sent: bytes) -> None:
    client = Client()
    if sent:
        client.send(sent)
    client.wait()
    assert client.aborted
    client.protocol.connection_lost(None)


async def test_connection_with_a_complete_request_stays_and_the_next_request_has_its_own_time() -> None:
    client = Client()
    client.send(HEADER)
    client.send(b"body")
    assert client.timers.pending == {}
    await client.responses(1)
    client.wait()
    assert not client.aborted
    client.send(HEADER[:20])
    assert len(client.timers.pending) == 1
    client.send(HEADER[20:] + b"body")
    await client.responses(2)
    assert client.timers.pending == {}
    client.protocol.connection_lost(None)


async def test_body_that_does_not_end_closes_the_connection_of_a_caller_that_was_refused() -> None:
    client = Client(app=refuse)
    client.send(b"POST /add HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
    await eventually(lambda: b"HTTP/1.1 401" in client.written)
    chunk = b"64\r\n" + 100 * b"x" + b"\r\n"
    for _ in range(MAX_BODY_BYTES // len(chunk)):
        client.send(chunk)
        assert not client.aborted
    client.send(chunk)
    assert client.aborted
    client.protocol.connection_lost(None)


@pytest.mark.parametrize(("length", "closed"), [(MAX_BODY_BYTES, False), (MAX_BODY_BYTES + 1, True)])
@pytest.mark.parametrize("parts", [1, 2])
async def test_body_that_is_too_long_closes_the_connection_after_the_response(
    length: int, closed: bool, parts: int
) -> None:
    client = Client()
    header, body = b"POST /add HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % length, length * b"x"
    if parts == 1:
        client.send(header + body)
    else:
        client.send(header)
        client.send(body)
    await client.responses(1)
    await eventually(lambda: client.protocol.cycle.response_complete)
    assert client.aborted == closed
    client.protocol.connection_lost(None)


async def test_many_requests_on_one_connection_are_not_one_long_body() -> None:
    client = Client()
    for number in range(1, 4):
        client.send(b"POST /add HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900\r\n\r\n" + 900 * b"x")
        await client.responses(number)
    assert not client.aborted
    client.protocol.connection_lost(None)


async def test_response_that_is_not_read_ends_the_connection_and_a_slow_reader_goes_on() -> None:
    client = Client()
    client.send(HEADER + b"body")
    assert client.timers.pending == {}
    client.unread = 5_000_000
    client.protocol.pause_writing()
    for _ in range(20):
        client.unread -= unread.MIN_READ_BYTES
        client.wait()
        assert not client.aborted
    client.protocol.resume_writing()
    assert client.timers.pending == {}
    client.protocol.pause_writing()
    client.unread -= unread.MIN_READ_BYTES - 1  # one byte now and then is not enough
    client.wait()
    assert client.aborted
    client.protocol.connection_lost(None)
    assert client.timers.pending == {}


async def test_address_has_a_limit_of_connections_and_websockets_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS_PER_ADDRESS", 2)
    first, second = Client(), Client()
    assert (Client().aborted, Client("192.0.2.2").aborted) == (True, False)
    first.send(UPGRADE)
    assert (first.get_protocol() is first.protocol, first.timers.pending) == (False, {})
    third = Client()
    assert (third.aborted, Client().aborted) == (False, True)
    second.protocol.connection_lost(None)
    assert not Client().aborted


@pytest.mark.parametrize(
    "headers",
    [b"content-length: 30\r\n", b"transfer-encoding: chunked\r\n", b"x: y\r\n" * 200, b"x: %s\r\n" % (b"y" * 9000)],
    ids=["body", "chunked body", "many headers", "long header"],
)
async def test_websocket_request_that_the_library_refuses_ends_the_connection(headers: bytes) -> None:
    client = Client()
    client.send(UPGRADE.removesuffix(b"\r\n") + headers + b"\r\n")
    assert (client.get_protocol() is client.protocol, client.timers.pending) == (False, {})
    assert client.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert client.aborted
