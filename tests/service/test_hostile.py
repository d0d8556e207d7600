"""Hostile connections to a real coordinator: cut off with a reason and a metric, and nobody else notices."""

from collections.abc import Iterator
from pathlib import Path
from select import select

import msgspec
import pytest

import countless
from countless.client.link import Link, LinkError, Place
from countless.core.messages import Report
from countless.service.access import new_token
from countless.service.app import STATE_FILE
from countless.service.store import Store
from countless.transports.frames import MOST_BYTES, Hello, Join, encode_frames
from support.service import PATIENCE, Server, until

HELLO = next(encode_frames([Hello(1, "evil", 1)]))
JOIN = next(encode_frames([Join("hits", 0, 1)]))

ATTACKS: dict[str, tuple[list[bytes], str]] = {
    "garbage": ([b"\xc1" * 100], "not a frame"),
    "no hello": ([JOIN], "a connection begins with a hello"),
    "an empty frame": ([b""], "not a frame"),
    "a frame of nothing": ([b"\x90"], "a connection begins with a hello"),
    "another version": ([next(encode_frames([Hello(9, "evil", 1)]))], "speaks version 1"),
    "two hellos": ([HELLO, HELLO], "a second hello"),
    "a stranger's counter": ([HELLO, next(encode_frames([Report("hits", 0, 5, 1)]))], "has not joined"),
    "a round that is not": ([HELLO, JOIN, next(encode_frames([Report("hits", 9, 5, 1)]))], "speaks of round 9"),
    "a number too large": ([HELLO, msgspec.msgpack.encode([[5, "hits", 0, b"\xff" * 64]])], "from 0 to 2^255"),
    "deep arrays": ([HELLO, b"\x91" * 10_000], "not a frame"),
    "an array without end": ([HELLO, b"\xdd\xff\xff\xff\xff"], "not a frame"),
    "a frame too large": ([HELLO, b"\x91" + b"\x00" * MOST_BYTES], "1009"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("hostile")) as server:
        yield server


def fate(link: Link) -> str:
    """Why it was cut off."""
    try:
        while select([link.socket], [], [], PATIENCE)[0]:
            link.receive()
    except LinkError as error:
        return str(error)
    finally:
        link.close()
    return "not cut off"


@pytest.mark.parametrize(("frames", "reason"), ATTACKS.values(), ids=ATTACKS.keys())
def test_whoever_breaks_the_protocol_is_told_why(server: Server, frames: list[bytes], reason: str) -> None:
    with countless.connect(server.url, site="honest") as client:
        client.counter("safe").add(7)
        assert client.flush()
        link = Link(Place.of(server.url), None)
        try:
            for frame in frames:
                link.send(frame)
        except LinkError:
            pass  # cut off before it was done
        assert reason in fate(link) or reason == "1009"
        client.counter("safe").add(3)
        assert client.flush()
        assert client.trouble is None
    assert server.inspect("safe")["known"] % 10 == 0


def test_the_metric_counts_them(server: Server) -> None:
    link = Link(Place.of(server.url), None)
    link.send(b"\xc1")
    fate(link)
    import urllib.request

    page = urllib.request.urlopen(f"{server.url}/metrics").read().decode()  # noqa: S310
    assert 'countless_dropped_total{reason="protocol"}' in page


def test_a_token_for_one_site_is_no_good_for_another(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        store = Store(tmp_path / STATE_FILE)
        token, reading = new_token(store, "site", "a", site="a"), new_token(store, "read", "r")
        store.close()
        with pytest.raises(LinkError, match=r"\(403\): a token of scope site is needed"):
            Link(Place.of(server.url), None)
        with pytest.raises(LinkError, match="403"):
            Link(Place.of(server.url), reading)
        link = Link(Place.of(server.url), token)
        link.send(HELLO)
        assert "this token is for site 'a'" in fate(link)
        with countless.connect(server.url, token=token, site="a") as client:
            client.counter("hits").add(2)
            assert client.flush()
        with countless.connect(server.url, token=token[:-1], site="a") as other:
            other.counter("hits").add(2)
            until(lambda: other.trouble)
            assert "403" in str(other.trouble)
            assert not other.close(0.1)
