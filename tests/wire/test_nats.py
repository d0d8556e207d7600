"""What stands around a frame on NATS: names, numbers, cards, packets, and the wire of the broker itself."""

import base64
import json
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from countless.core.messages import StartRound
from countless.core.triggers import EveryNth, GeometricGrowth, OffsetMultiple
from countless.errors import InvalidParameter, ProtocolError
from countless.wire import nats_subjects as nats
from countless.wire.nats_broadcast import pack_for_everybody, pack_for_group, unpack_round
from countless.wire.nats_protocol import Complaint, Delivery, Info, Parser, Pinged, Ponged, publish
from countless.wire.nats_subjects import Card, Closed, Words
from countless.wire.nats_url import Broker, Credentials, Server

CARDS = [Card("session", seat, bytes([seat]) * 16) for seat in range(64, 70)]


@given(st.text(min_size=1, max_size=60) | st.just("ä" * 500))
def test_any_name_is_one_token_of_its_own(name: str) -> None:
    token = nats.token(name)
    assert token
    assert not set(token) & set(" .*>\t\r\n$")
    assert len(token) <= 200
    assert nats.token(name + "x") != token


def test_counters_are_spread_over_all_shards_and_series_stay_with_their_counter() -> None:
    assert {nats.shard_of(f"counter {number}", 16) for number in range(400)} == set(range(16))
    assert nats.shard_of("requests", 16) == 14  # for ever: whatever else it were, state would be elsewhere
    assert nats.shard_of('requests{route="/a{b}"}', 16) == 14


def test_what_goes_down_a_line_comes_back() -> None:
    assert nats.unpack_up(nats.pack_up(7, b"frame")) == (7, b"frame")
    assert nats.unpack_up(nats.GOODBYE)[0] == 0xFFFFFFFF
    assert nats.unpack_down(nats.pack_card(CARDS[0])) == CARDS[0]
    assert nats.unpack_down(nats.pack_closed("weil's so ist")) == Closed("weil's so ist")
    assert nats.unpack_down(nats.pack_words(Words(3, 1, b"frame"))) == Words(3, 1, b"frame")


@given(st.binary(max_size=40))
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    for read in (nats.unpack_up, nats.unpack_down, lambda data: unpack_round(data, CARDS[0], True)):
        try:
            read(data)
        except ProtocolError:
            continue


@given(st.integers(2, 1 << 255), st.data())
def test_each_finds_its_own_offset_in_a_packet_and_nobody_elses(step: int, data: st.DataObject) -> None:
    offsets = {card: data.draw(st.integers(0, step - 1)) for card in CARDS[1:]}
    starts = {card: StartRound("hits", 5, OffsetMultiple(step, offset)) for card, offset in offsets.items()}
    packet = pack_for_group(starts)
    for card, start in starts.items():
        assert unpack_round(packet, card, to_everybody=False) == start
    assert unpack_round(packet, CARDS[0], to_everybody=False) is None  # it sits there, and is not meant


def test_without_the_key_an_offset_is_any_number() -> None:
    """5 equal offsets of 40 bits: what travels has no two alike, and none is the offset; by chance below 1e-10."""
    step, offset = 1 << 40, 12345
    packet = pack_for_group({card: StartRound("hits", 5, OffsetMultiple(step, offset)) for card in CARDS[1:]})
    stranger = [card._replace(key=b"another key of 16") for card in CARDS[1:]]
    seen = {unpack_round(packet, card, to_everybody=False) for card in stranger}
    assert len(seen) == 5
    assert StartRound("hits", 5, OffsetMultiple(step, offset)) not in seen


def test_a_packet_to_everybody_leaves_out_who_is_not_meant() -> None:
    start = StartRound("hits", 2, GeometricGrowth(0.1))
    packet = pack_for_everybody(start, [65, 66])
    assert [card.seat for card in CARDS if unpack_round(packet, card, to_everybody=True) == start] == [64, 67, 68, 69]
    packet = pack_for_group({card: StartRound("hits", 2, EveryNth(1)) for card in CARDS[:2]})
    assert [unpack_round(packet, card, False) is not None for card in CARDS[:3]] == [True, True, False]


STREAM = (
    b'INFO {"connect_urls":["a:1"]}\r\nPING\r\n+OK\r\nMSG in.box 9 2\r\n\r\n\r\nPONG\r\n'
    b"HMSG in.box 9 to.me 16 16\r\nNATS/1.0 503\r\n\r\n\r\nHMSG in 8 12 15\r\nNATS/1.0\r\n\r\nabc\r\n-ERR 'no'\r\n"
)
EVENTS = [
    Info({"connect_urls": ["a:1"]}),
    Pinged(),
    Delivery(9, "in.box", b"\r\n"),
    Ponged(),
    Delivery(9, "in.box", b"", 503),
    Delivery(8, "in", b"abc"),
    Complaint("no"),
]


@given(st.lists(st.integers(0, len(STREAM))))
def test_the_wire_may_be_cut_anywhere(cuts: list[int]) -> None:
    parser, places = Parser(), [0, *sorted(cuts), len(STREAM)]
    events = [event for a, b in pairwise(places) for event in parser.feed(STREAM[a:b])]
    assert events == EVENTS


@pytest.mark.parametrize("line", [b"HTTP/1.1 400\r\n", b"MSG a\r\n", b"MSG a b c\r\n", b"INFO no\r\n", b"x" * 70_000])
def test_what_is_no_nats_server_is_found_out(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a NATS server"):
        list(Parser().feed(line))


def test_a_publish() -> None:
    assert publish("a.b", b"xyz") == b"PUB a.b 3\r\nxyz\r\n"
    assert publish("a.b", b"", "re.ply") == b"PUB a.b re.ply 0\r\n\r\n"


def test_addresses() -> None:
    broker = Broker.of("nats://me:s%40cret@one:1,two,[::1]:3")
    assert broker.servers == (Server("one", 1, False), Server("two", 4222, False), Server("::1", 3, False))
    assert broker.login == {"user": "me", "pass": "s@cret"}
    assert (broker.base, repr(broker)) == ("nats://one:1,two:4222,[::1]:3", f"<Broker at {broker.base}>")
    assert Broker.of("tls://token@one").login == {"auth_token": "token"}
    assert Broker.of("tls://token@one").servers[0].secure


@pytest.mark.parametrize(
    "url", ["http://a", "nats://", "nats://me:secret@a:b", "nats://me:secret@a/path", "nats://a,,b"]
)
def test_bad_addresses_are_refused_and_no_password_is_shown(url: str) -> None:
    with pytest.raises(InvalidParameter, match="nats://127") as caught:
        Broker.of(url)
    assert "secret" not in str(caught.value)


def test_a_file_that_holds_no_credentials_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({"user": "me"}))
    for path in (tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(InvalidParameter, match="COUNTLESS_NATS_CREDS"):
            Credentials(path)


def test_credentials_sign_what_the_broker_asks(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    seed = base64.b32encode(b"\x95\x00" + bytes(range(32)) + b"\x00\x00").decode().rstrip("=")
    (tmp_path / "creds").write_text(
        f"-----BEGIN NATS USER JWT-----\neyJ0.e30.x-_\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    credentials = Credentials(tmp_path / "creds")
    assert credentials.jwt == "eyJ0.e30.x-_"
    signature = base64.urlsafe_b64decode(credentials.sign("nonce") + b"==")
    key.public_key().verify(signature, b"nonce")
