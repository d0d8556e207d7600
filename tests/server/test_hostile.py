"""Hostile connections to a real coordinator are closed with a reason and counted; other clients are not affected."""

from collections.abc import Iterator
from pathlib import Path
from socket import create_connection
from urllib.request import urlopen

import msgspec
import pytest

import countless
from countless.client.transport.base import ConnectionLost
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.core.messages import Report
from countless.server.settings import STATE_FILE
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import new_token
from countless.wire.frames import MAX_FRAME_BYTES, VERSION, Hello, Item, Join, Leave, Sync, SyncAck, encode_frames
from support.raw_connection import close_reason, receive_until, send_text
from support.service import TIMEOUT_S, Server, until

pytestmark = pytest.mark.slow


def frame(*items: Item) -> bytes:
    return next(encode_frames(items))


HELLO = frame(Hello(VERSION, "evil", 1))
JOIN = frame(Join("hits", 0, 1))
NO_HELLO, NOT_JOINED = "a connection begins with a hello", "has not joined"

VIOLATIONS: dict[str, tuple[list[bytes | str], str]] = {
    "garbage": ([b"\xc1" * 100], "not a frame"),
    "join without hello": ([JOIN], NO_HELLO),
    "sync without hello": ([frame(Sync(1))], NO_HELLO),
    "empty bytes": ([b""], "not a frame"),
    "frame without items": ([b"\x90"], NO_HELLO),
    "other protocol version": ([frame(Hello(9, "evil", 1))], f"this coordinator has {VERSION}"),
    "second hello": ([HELLO, HELLO], "a second hello"),
    "report without join": ([HELLO, frame(Report("hits", 0, 5, 1))], NOT_JOINED),
    "leave without join": ([HELLO, frame(Leave("never", 0, 5))], NOT_JOINED),
    "round that does not exist": ([HELLO, JOIN, frame(Report("hits", 9, 5, 1))], "round 9"),
    "number too large": ([HELLO, msgspec.msgpack.encode([[5, "hits", 0, b"\xff" * 64]])], "length <= 32"),
    "deeply nested arrays": ([HELLO, b"\x91" * 10_000], "not a frame"),
    "array longer than the frame": ([HELLO, b"\xdd\xff\xff\xff\xff"], "not a frame"),
    "text frame": ([HELLO, "as text"], "frames are binary"),
    "item for the other direction": ([HELLO, frame(SyncAck(1))], "Invalid value 11"),
    "frame too large": ([HELLO, b"\x91" + b"\x00" * MAX_FRAME_BYTES], "1009"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("hostile")) as server:
        yield server


def connect(server: Server) -> WebSocketConnection:
    return WebSocketConnection(Endpoint.parse(server.url), None)


def check_served(server: Server) -> None:
    """Another client is served as usual."""
    with countless.connect(server.url, site="honest") as client:
        client.counter("safe").add(10)
        assert client.flush(TIMEOUT_S)


@pytest.mark.parametrize(("frames", "reason"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_protocol_violation_closes_the_connection_with_a_reason(
    server: Server, frames: list[bytes | str], reason: str
) -> None:
    with countless.connect(server.url, site="honest") as client:
        client.counter("safe").add(7)
        assert client.flush()
        connection = connect(server)
        try:
            for each in frames:
                if isinstance(each, str):
                    send_text(connection, each.encode())
                else:
                    connection.send(each)
        except ConnectionLost:
            pass  # closed before everything was sent
        assert reason in close_reason(connection) or reason == "1009"
        client.counter("safe").add(3)
        assert client.flush()
        assert client.last_error is None
    assert server.inspect("safe")["known"] % 10 == 0


def test_protocol_violations_are_counted_in_the_metrics(server: Server) -> None:
    connection = connect(server)
    connection.send(b"\xc1")
    close_reason(connection)
    assert 'countless_dropped_total{reason="protocol"}' in urlopen(f"{server.url}/metrics").read().decode()  # noqa: S310


def test_site_token_is_refused_for_another_site(tmp_path: Path) -> None:
    with Server(tmp_path, closed=True) as server:
        store = SqliteStore(tmp_path / STATE_FILE)
        token, reading = new_token(store, "site", "a", site="a"), new_token(store, "read", "r")
        store.close()
        endpoint = Endpoint.parse(server.url)
        with pytest.raises(ConnectionLost, match=r"\(403\): a token of scope site is needed"):
            WebSocketConnection(endpoint, None)
        with pytest.raises(ConnectionLost, match="403"):
            WebSocketConnection(endpoint, reading)
        connection = WebSocketConnection(endpoint, token)
        connection.send(HELLO)
        assert "this token is for site 'a'" in close_reason(connection)
        with countless.connect(server.url, token=token, site="a") as client:
            client.counter("hits").add(2)
            assert client.flush()
        with countless.connect(server.url, token=token[:-1], site="a") as other:
            other.counter("hits").add(2)
            until(lambda: other.last_error)
            assert "403" in str(other.last_error)
            assert not other.close(0.1)


def send_often(connection: WebSocketConnection, data: bytes) -> None:
    for _ in range(500):
        connection.send(data)


def test_client_that_never_reads_does_not_affect_others(server: Server) -> None:
    connection = connect(server)
    connection.send(frame(Hello(VERSION, "deaf", 1)))
    requests = frame(*[Join("x" * 400, 99, 1)] * 400)  # each has a reply of the same size
    connection.socket.settimeout(0.2)
    with pytest.raises(ConnectionLost):  # TCP makes it wait, or the coordinator closes it
        send_often(connection, requests)
    check_served(server)
    connection.abandon()


def test_short_lived_connections_leave_no_sessions(server: Server) -> None:
    endpoint = Endpoint.parse(server.url)
    for number in range(60):
        if number % 3 == 0:
            create_connection((endpoint.host, endpoint.port)).close()
            continue
        connection = connect(server)
        if number % 3 == 1:
            connection.send(frame(Hello(VERSION, f"short-{number}", 1)))
        connection.abandon()
    check_served(server)
    until(lambda: not [site for site in server.sites() if site["site"].startswith("short")])


def test_bytes_that_are_not_http_do_not_affect_others(server: Server) -> None:
    endpoint = Endpoint.parse(server.url)
    sockets = [create_connection((endpoint.host, endpoint.port)) for _ in range(3)]
    sockets[0].sendall(b"\x16\x03\x01" + b"\x00" * 1000)
    sockets[1].sendall(b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 100_000)
    sockets[2].sendall(b"GET /api/v1/site HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n")  # never complete
    check_served(server)
    for each in sockets:
        each.close()


def test_repeated_reconnects_of_one_incarnation_count_once(server: Server) -> None:
    for count in range(1, 30):
        connection = connect(server)
        connection.send(frame(Hello(VERSION, "again", 5), Join("again", 0, count), Sync(1)))
        assert receive_until(connection, SyncAck(1))
        connection.abandon()
    assert 1 <= server.inspect("again")["known"] <= 29
    assert server.inspect("again")["sites"] == 1
