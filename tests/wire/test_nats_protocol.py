from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.errors import ProtocolError
from countless.wire.nats_protocol import Delivery, Info, Parser, Ping, Pong, ServerError, publish

RECEIVED = (
    b'INFO {"connect_urls":["a:1"]}\r\nPING\r\n+OK\r\nMSG in.box 9 2\r\n\r\n\r\nPONG\r\n'
    b"HMSG in.box 9 to.me 16 16\r\nNATS/1.0 503\r\n\r\n\r\nHMSG in 8 12 15\r\nNATS/1.0\r\n\r\nabc\r\n-ERR 'no'\r\n"
)
EVENTS = [
    Info({"connect_urls": ["a:1"]}),
    Ping(),
    Delivery(9, "in.box", b"\r\n"),
    Pong(),
    Delivery(9, "in.box", b"", 503),
    Delivery(8, "in", b"abc"),
    ServerError("no"),
]


@given(st.lists(st.integers(0, len(RECEIVED))))
def test_parser_gives_the_same_events_wherever_the_bytes_are_split(cuts: list[int]) -> None:
    parser, places = Parser(), [0, *sorted(cuts), len(RECEIVED)]
    events = [event for a, b in pairwise(places) for event in parser.feed(RECEIVED[a:b])]
    assert events == EVENTS


@pytest.mark.parametrize("line", [b"HTTP/1.1 400\r\n", b"MSG a\r\n", b"MSG a b c\r\n", b"INFO no\r\n", b"x" * 70_000])
def test_parser_refuses_what_no_nats_server_sends(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a NATS server"):
        list(Parser().feed(line))


def test_publish_has_the_size_and_an_optional_reply_subject() -> None:
    assert publish("a.b", b"xyz") == b"PUB a.b 3\r\nxyz\r\n"
    assert publish("a.b", b"", "re.ply") == b"PUB a.b re.ply 0\r\n\r\n"
