"""Messages as bytes and, in a frame of their own, back; all other bytes are refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.messages import Message, Report, SetTrigger, Snapshot, StartRound
from countless.core.parameters import MIN_ALPHA
from countless.core.triggers import BernoulliSampling, EveryNth, GeometricGrowth, OffsetMultiple, OncePerBlock, Trigger
from countless.errors import ProtocolError
from countless.wire.codec import encode
from countless.wire.frames import Item, decode_down, decode_up, encode_frames

pack = msgspec.msgpack.encode

naturals = st.integers(0, 2**70) | st.integers(0, 2**255 - 1) | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64])
steps = naturals.map(lambda n: max(1, n))
triggers: st.SearchStrategy[Trigger] = st.one_of(
    steps.map(EveryNth),
    st.builds(GeometricGrowth, st.floats(MIN_ALPHA, 0.5, exclude_max=True), st.integers(0, 2**200), st.integers(0, 63)),
    steps.map(BernoulliSampling),
    steps.map(OncePerBlock),
    steps.flatmap(lambda step: st.integers(0, step - 1).map(lambda offset: OffsetMultiple(step, offset))),
)
counters = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Report, counters, naturals, naturals, naturals),
    st.builds(Snapshot, counters, naturals, naturals),
    st.builds(StartRound, counters, naturals, triggers),
    st.builds(SetTrigger, counters, naturals, triggers, naturals),
)

# These bytes are the protocol, for sites in other languages.
VECTORS: list[tuple[Message, str]] = [
    (Report("hits", 3, 1000, 2), "95 00 a4 68 69 74 73 03 cd 03 e8 02"),
    (Snapshot("hits", 3, 5), "94 01 a4 68 69 74 73 03 05"),
    (StartRound("hits", 4, EveryNth(1)), "94 02 a4 68 69 74 73 04 92 00 01"),
    (StartRound("hits", 4, GeometricGrowth(0.25)), "94 02 a4 68 69 74 73 04 92 01 cb 3f d0 00 00 00 00 00 00"),
    (StartRound("hits", 4, BernoulliSampling(7)), "94 02 a4 68 69 74 73 04 92 02 07"),
    (StartRound("hits", 4, OncePerBlock(300)), "94 02 a4 68 69 74 73 04 92 03 cd 01 2c"),
    (SetTrigger("hits", 4, OffsetMultiple(7, 3), 99), "95 03 a4 68 69 74 73 04 93 04 07 03 63"),
    (Snapshot("é", 0, 2**64 - 1), "94 01 a2 c3 a9 00 cf ff ff ff ff ff ff ff ff"),
    (Snapshot("é", 0, 2**64), "94 01 a2 c3 a9 00 c4 09 00 00 00 00 00 00 00 00 01"),
    (Report("a", 0, 2**64, 1), "95 00 a1 61 00 c4 09 00 00 00 00 00 00 00 00 01 01"),
]

MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "not an array": pack({"kind": 0}),
    "an empty array": pack([]),
    "a kind that does not exist": pack([14, "hits", 1, 2]),
    "a negative kind": pack([-1, "hits", 1, 2]),
    "a kind that is a boolean": pack([True, "hits", 1, 2]),
    "a kind that is a number with a point": pack([1.0, "hits", 1, 2]),
    "a field too few": pack([0, "hits", 1, 2]),
    "a field too many": pack([1, "hits", 1, 2, 3]),
    "a counter that is a number": pack([1, 7, 1, 2]),
    "a counter that is bytes": pack([1, b"hits", 1, 2]),
    "a negative round": pack([1, "hits", -1, 2]),
    "a round that is a boolean": pack([1, "hits", True, 2]),
    "a count with a point": pack([1, "hits", 1, 2.0]),
    "a count that is text": pack([1, "hits", 1, "2"]),
    "a count that is nothing": pack([1, "hits", 1, None]),
    "a count that is a trigger": pack([1, "hits", 1, [0, 1]]),
    "a trigger that is a number": pack([2, "hits", 1, 5]),
    "a trigger of no kind": pack([2, "hits", 1, []]),
    "a trigger of an unknown kind": pack([2, "hits", 1, [5, 1]]),
    "a trigger of a negative kind": pack([2, "hits", 1, [-1, 1]]),
    "a trigger without its number": pack([2, "hits", 1, [2]]),
    "a trigger with too many numbers": pack([2, "hits", 1, [2, 5, 5]]),
    "a trigger with a number that is not its own": pack([2, "hits", 1, [1, 0.1, 5, 1, 1]]),
    "a step of zero": pack([2, "hits", 1, [2, 0]]),
    "a step that is a boolean": pack([2, "hits", 1, [2, True]]),
    "a trigger as the step of a trigger": pack([2, "hits", 1, [2, [0, 1]]]),
    "an offset outside the step": pack([2, "hits", 1, [4, 5, 5]]),
    "an alpha of one": pack([2, "hits", 1, [1, 1.0]]),
    "an alpha that is not a number": pack([2, "hits", 1, [1, float("nan")]]),
    "a message cut short": encode(Report("hits", 3, 1000, 2))[:-1],
    "a message and a little more": encode(Report("hits", 3, 1000, 2)) + b"\x00",
    "text that is not text": b"\x94\x01\xa2\xc3\x28\x00\x05",
    "arrays in arrays without end": b"\x91" * 100_000,
    "an array longer than any memory": b"\xdd\xff\xff\xff\xff",
    "an extension": b"\x94\x01\xa4hits\x01\xd4\x05\x00",
    "a map with an array as its key": b"\x94\x01\xa4hits\x01\x81\x90\x00",
}


def decode(data: bytes) -> Item:
    """The only item of a frame, of a site or of a coordinator."""
    frame = b"\x91" + data
    try:
        [up] = decode_up(frame)
    except ProtocolError:
        [down] = decode_down(frame)
        return down
    return up


@given(messages)
def test_message_is_decoded_as_encoded(message: Message) -> None:
    back = decode(encode(message))
    assert back == message
    assert type(back) is type(message)


@pytest.mark.parametrize(("message", "data"), VECTORS, ids=[str(message) for message, _ in VECTORS])
def test_message_vectors(message: Message, data: str) -> None:
    assert encode(message).hex(" ") == data
    assert decode(bytes.fromhex(data)) == message


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_message_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


def decodes_or_refuses(data: bytes) -> None:
    try:
        item = decode(data)
    except ProtocolError:
        return
    [frame] = encode_frames([item])
    assert decode(frame[1:]) == item


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_protocol_error(data: bytes) -> None:
    decodes_or_refuses(data)


@given(messages, st.data())
def test_damaged_messages_are_a_message_or_a_protocol_error(message: Message, data: st.DataObject) -> None:
    damaged = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    decodes_or_refuses(bytes(damaged))


numbers = st.integers(-(2**63), 2**64 - 1) | st.floats()
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.lists(plain, min_size=1, max_size=6), st.integers(0, 3))
def test_random_fields_are_a_message_or_a_protocol_error(fields: list[object], kind: int) -> None:
    decodes_or_refuses(pack([kind, *fields]))


@given(st.integers(0, 3), counters, st.integers(0, 9), st.integers(0, 5), st.lists(plain, max_size=3))
def test_random_triggers_are_a_trigger_or_a_protocol_error(
    kind: int, counter: str, number: int, trigger: int, numbers: list[object]
) -> None:
    decodes_or_refuses(pack([kind, counter, number, [trigger, *numbers], 7][: 4 if kind == 2 else 5]))
