"""Hostile connections to a real coordinator: cut off with a reason and a metric, and nobody else notices."""

from collections.abc import Iterator
from pathlib import Path
from socket import create_connection
from typing import Any

import msgspec
import pytest

import countless
from countless.client.transport.base import ConnectionLost
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.core.messages import Report
from countless.server.http.auth import new_token
from countless.server.settings import STATE_FILE
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import MAX_FRAME_BYTES, Hello, Join, Leave, Sync, SyncAck, encode_frames
from support.hostile import drain, fate
from support.service import Server, until

pytestmark = pytest.mark.slow

HELLO = next(encode_frames([Hello(1, "evil", 1)]))
JOIN = next(encode_frames([Join("hits", 0, 1)]))

ATTACKS: dict[str, tuple[list[bytes | str], str]] = {
    "garbage": ([b"\xc1" * 100], "not a frame"),
    "no hello": ([JOIN], "a connection begins with a hello"),
    "an empty frame": ([b""], "not a frame"),
    "a frame of nothing": ([b"\x90"], "a connection begins with a hello"),
    "another version": ([next(encode_frames([Hello(9, "evil", 1)]))], "this coordinator has version 1"),
    "two hellos": ([HELLO, HELLO], "a second hello"),
    "a stranger's counter": ([HELLO, next(encode_frames([Report("hits", 0, 5, 1)]))], "has not joined"),
    "a round that is not": ([HELLO, JOIN, next(encode_frames([Report("hits", 9, 5, 1)]))], "speaks of round 9"),
    "a number too large": ([HELLO, msgspec.msgpack.encode([[5, "hits", 0, b"\xff" * 64]])], "from 0 to 2^255"),
    "deep arrays": ([HELLO, b"\x91" * 10_000], "not a frame"),
    "an array without end": ([HELLO, b"\xdd\xff\xff\xff\xff"], "not a frame"),
    "a text": ([HELLO, "\x00 as text"], "frames are binary"),
    "a question before the hello": ([next(encode_frames([Sync(1)]))], "a connection begins with a hello"),
    "last words before the first": ([HELLO, next(encode_frames([Leave("never", 0, 5)]))], "has not joined"),
    "what only coordinators say": ([HELLO, next(encode_frames([SyncAck(1)]))], "does not travel up"),
    "a frame too large": ([HELLO, b"\x91" + b"\x00" * MAX_FRAME_BYTES], "1009"),
}


def say(link: WebSocketConnection, frame: bytes | str) -> None:
    if isinstance(frame, str):
        link._protocol.send_text(frame.encode())
        link._write()
    else:
        link.send(frame)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("hostile")) as server:
        yield server


@pytest.mark.parametrize(("frames", "reason"), ATTACKS.values(), ids=ATTACKS.keys())
def test_whoever_breaks_the_protocol_is_told_why(server: Server, frames: list[bytes | str], reason: str) -> None:
    with countless.connect(server.url, site="honest") as client:
        client.counter("safe").add(7)
        assert client.flush()
        link = WebSocketConnection(Endpoint.parse(server.url), None)
        try:
            for frame in frames:
                say(link, frame)
        except ConnectionLost:
            pass  # cut off before it was done
        assert reason in fate(link) or reason == "1009"
        client.counter("safe").add(3)
        assert client.flush()
        assert client.last_error is None
    assert server.inspect("safe")["known"] % 10 == 0


def test_the_metric_counts_them(server: Server) -> None:
    link = WebSocketConnection(Endpoint.parse(server.url), None)
    link.send(b"\xc1")
    fate(link)
    import urllib.request

    page = urllib.request.urlopen(f"{server.url}/metrics").read().decode()  # noqa: S310
    assert 'countless_dropped_total{reason="protocol"}' in page


def test_a_token_for_one_site_is_no_good_for_another(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        store = SqliteStore(tmp_path / STATE_FILE)
        token, reading = new_token(store, "site", "a", site="a"), new_token(store, "read", "r")
        store.close()
        with pytest.raises(ConnectionLost, match=r"\(403\): a token of scope site is needed"):
            WebSocketConnection(Endpoint.parse(server.url), None)
        with pytest.raises(ConnectionLost, match="403"):
            WebSocketConnection(Endpoint.parse(server.url), reading)
        link = WebSocketConnection(Endpoint.parse(server.url), token)
        link.send(HELLO)
        assert "this token is for site 'a'" in fate(link)
        with countless.connect(server.url, token=token, site="a") as client:
            client.counter("hits").add(2)
            assert client.flush()
        with countless.connect(server.url, token=token[:-1], site="a") as other:
            other.counter("hits").add(2)
            until(lambda: other.last_error)
            assert "403" in str(other.last_error)
            assert not other.close(0.1)


def honest_word(server: Server, number: int) -> None:
    """Somebody who behaves is served, whatever the others do."""
    with countless.connect(server.url, site="honest") as client:
        client.counter("safe").add(number)
        assert client.flush(20)


def say_often(link: WebSocketConnection, frame: bytes) -> None:
    for _ in range(500):
        link.send(frame)


@pytest.mark.slow
def test_whoever_asks_and_never_reads_harms_nobody(server: Server) -> None:
    link = WebSocketConnection(Endpoint.parse(server.url), None)
    link.send(next(encode_frames([Hello(1, "deaf", 1)])))
    novel: list[Any] = [Join("x" * 400, 99, 1)] * 400  # each is answered with as many bytes
    frame = next(encode_frames(novel))
    link.socket.settimeout(0.2)
    with pytest.raises(ConnectionLost):  # TCP holds it back at last, or it is cut off
        say_often(link, frame)
    honest_word(server, 10)
    link.abandon()


def test_a_storm_of_connections_leaves_nothing_behind(server: Server) -> None:
    place = Endpoint.parse(server.url)
    for number in range(60):
        if number % 3 == 0:
            create_connection((place.host, place.port)).close()
            continue
        link = WebSocketConnection(place, None)
        if number % 3 == 1:
            link.send(next(encode_frames([Hello(1, f"storm-{number}", 1)])))
        link.abandon()
    honest_word(server, 10)
    until(lambda: not [site for site in server.sites() if site["site"].startswith("storm")])


def test_noise_that_is_no_http_harms_nobody(server: Server) -> None:
    place = Endpoint.parse(server.url)
    noises = [create_connection((place.host, place.port)) for _ in range(3)]
    noises[0].sendall(b"\x16\x03\x01" + b"\x00" * 1000)
    noises[1].sendall(b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 100_000)
    noises[2].sendall(b"GET /api/v1/site HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n")  # and waits
    honest_word(server, 10)
    for noise in noises:
        noise.close()


def test_reconnecting_over_and_over_as_the_same_life_counts_once(server: Server) -> None:
    for count in range(1, 30):
        link = WebSocketConnection(Endpoint.parse(server.url), None)
        link.send(next(encode_frames([Hello(1, "again", 5), Join("again", 0, count), Sync(1)])))
        assert drain(link, SyncAck(1))
        link.abandon()
    assert server.inspect("again")["known"] >= 1
    assert server.inspect("again")["known"] <= 29
    assert server.inspect("again")["sites"] == 1
