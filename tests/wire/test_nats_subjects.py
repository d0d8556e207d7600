import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.errors import ProtocolError
from countless.wire.keys import COUNTER, Key
from countless.wire.nats_subjects import (
    CLOSE,
    DataFrame,
    StreamClosed,
    StreamInfo,
    decode_downlink,
    decode_uplink,
    encode_closed,
    encode_data,
    encode_info,
    encode_uplink,
    shard_of,
    subject_token,
)


@given(st.text(min_size=1, max_size=60) | st.just("ä" * 500))
def test_every_site_name_is_one_subject_token_of_its_own(name: str) -> None:
    token = subject_token(name)
    assert token
    assert not set(token) & set(" .*>\t\r\n$")
    assert len(token) <= 200
    assert subject_token(name + "x") != token


def test_counters_are_spread_over_all_shards_and_series_share_the_shard_of_their_counter() -> None:
    assert {shard_of(Key(COUNTER, f"counter {number}"), 16) for number in range(400)} == set(range(16))
    assert shard_of(Key(COUNTER, "requests"), 16) == 14  # must never change: the log of shard 14 has its state
    assert shard_of(Key(COUNTER, 'requests{route="/a{b}"}'), 16) == 14


def test_stream_messages_survive_their_encoding() -> None:
    assert decode_uplink(encode_uplink(7, b"frame")) == (7, b"frame")
    assert decode_uplink(CLOSE)[0] == 0xFFFFFFFF
    for encoded, message in (
        (encode_info(StreamInfo("session")), StreamInfo("session")),
        (encode_data(DataFrame(3, b"frame")), DataFrame(3, b"frame")),
        (encode_closed(StreamClosed("weil's so ist")), StreamClosed("weil's so ist")),
    ):
        assert decode_downlink(encoded) == message


def test_stream_info_has_the_three_fields_that_earlier_clients_decode() -> None:
    data = encode_info(StreamInfo("session"))
    assert data[:8] == bytes(8)
    assert msgspec.msgpack.decode(data[8:], type=tuple[str, int, bytes]) == ("session", 0, b"")


def test_stream_info_of_an_earlier_coordinator_is_understood() -> None:
    earlier = bytes(8) + msgspec.msgpack.encode(("session", 70, b"k" * 16))
    assert decode_downlink(earlier) == StreamInfo("session")


def test_frame_after_a_round_start_to_a_group_names_the_remedy() -> None:
    with pytest.raises(ProtocolError, match="upgrade the coordinator"):
        decode_downlink(bytes.fromhex("00000002 00000001") + b"frame")


@given(st.binary(max_size=40))
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    for decode in (decode_uplink, decode_downlink):
        try:
            decode(data)
        except ProtocolError:
            continue
