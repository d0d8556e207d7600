"""Frames: what travels between a site and the coordinator in one piece, for all counters of the site together.

A frame is an array of items, each an array [kind, fields...] (MessagePack): the four messages of the protocol as the
codec writes them, kinds 0 to 3, and beside them the few words that a connection needs. A connection opens with `Hello`,
which carries the version of the protocol, and the coordinator answers `Welcome` or `Buried`; who speaks is known from
then on.

Everything here has a limit, because the peer may be anybody: the bytes of a frame, the length of a name, the size of a
number (bounds are computed in floating point, which ends at 2^1024). Whatever is not a frame is a `ProtocolError`.
"""

from collections.abc import Callable, Iterable, Iterator
from struct import pack
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from countless.core.messages import DownMessage, Message, Report, SetTrigger, Snapshot, StartRound, UpMessage
from countless.errors import ProtocolError
from countless.wire.codec import encode, from_array
from countless.wire.names import MAX_NAME_CHARS, require_name

VERSION = 1
MAX_FRAME_BYTES = 1 << 18  # decoding takes up to 60 times the memory of the frame, for a moment
MAX_NUMBER = (1 << 255) - 1


class Hello(NamedTuple):
    """Up, first of all: this life of this site speaks this version."""

    version: int
    site: str
    incarnation: int


class Join(NamedTuple):
    """Up: I count this counter too, and my exact count is this."""

    counter: str
    round: int
    count: int  # type: ignore[assignment]  # hides tuple.count


class Leave(NamedTuple):
    """Up: my last word on this counter, for good."""

    counter: str
    round: int
    count: int  # type: ignore[assignment]


class Sync(NamedTuple):
    """Up: tell me when all I have said so far is safe. Also the sign of life of a site with nothing to say."""

    number: int


class HelloAck(NamedTuple):
    """Down: go on. Give a sign of life at least every so many milliseconds."""

    version: int
    heartbeat_ms: int


class IncarnationRetired(NamedTuple):
    """Down: this life was given up, and this much is known of each of its counters. Begin another with the rest."""

    known_counts: tuple[tuple[str, int], ...]


class LeaveAck(NamedTuple):
    """Down: your last word on this counter is safe."""

    counter: str


class SyncAck(NamedTuple):
    """Down: all you said before is safe."""

    number: int


class Rejoin(NamedTuple):
    """Down: I do not know the round you are in; join anew, with your count or from nothing."""

    counter: str
    keep_count: bool


class CounterRejected(NamedTuple):
    """Down: this counter is not taken in, and why."""

    counter: str
    reason: str


UpItem = UpMessage | Hello | Join | Leave | Sync
DownItem = DownMessage | HelloAck | IncarnationRetired | LeaveAck | SyncAck | Rejoin | CounterRejected
Item = UpItem | DownItem

_MESSAGES = (Report, Snapshot, StartRound, SetTrigger)
_WORDS = (
    Hello,
    Join,
    Leave,
    Sync,
    HelloAck,
    IncarnationRetired,
    LeaveAck,
    SyncAck,
    Rejoin,
    CounterRejected,
)  # kinds from 4 on
_KIND: dict[type[Any], int] = {word: kind for kind, word in enumerate(_WORDS, start=len(_MESSAGES))}
_UP = frozenset({Report, Snapshot, Hello, Join, Leave, Sync})
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[list[Any]]).decode
_new = tuple.__new__  # a named tuple's own is a Python function
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
_Natural = Annotated[int, msgspec.Meta(ge=0)]  # below 2^64 here: what is larger travels as bytes
_decode_reports = msgspec.msgpack.Decoder(list[tuple[Literal[0], _Name, _Natural, _Natural, _Natural]]).decode
_REPORTS = b"\x95\x00"  # how the first item of a frame begins that is a report, where at most 15 are in it


def encode_frames(items: Iterable[Item], most_bytes: int = MAX_FRAME_BYTES) -> Iterator[bytes]:
    """The items in as few frames as the limit allows, in order.

    >>> [frame.hex(" ") for frame in encode_frames([Join("hits", 0, 3), Sync(1)])]
    ['92 94 05 a4 68 69 74 73 00 03 92 07 01']
    """
    pieces: list[bytes] = []
    size = _HEADER
    for item in items:
        piece = _encode_item(item)
        if size + len(piece) > most_bytes:
            if pieces:
                yield _frame(pieces)
            pieces, size = [], _HEADER
        pieces.append(piece)
        size += len(piece)
    if pieces:
        yield _frame(pieces)


def decode_up(data: bytes) -> list[UpItem]:
    """What a site sent, checked field by field."""
    if data[1:3] == _REPORTS and len(data) <= MAX_FRAME_BYTES:
        try:
            reports = _decode_reports(data)
            if all(report[1].isprintable() for report in reports):
                return [_new(Report, report[1:]) for report in reports]
        except (msgspec.DecodeError, ValueError):
            pass  # something else is in it too, or it is wrong, and then the long way says why
    return [item for item in _items(data) if _travels(item, up=True)]  # type: ignore[misc]


def decode_down(data: bytes) -> list[DownItem]:
    """What the coordinator sent, checked field by field."""
    return [item for item in _items(data) if _travels(item, up=False)]  # type: ignore[misc]


_HEADER = 5  # bytes of the longest array header


def _frame(pieces: list[bytes]) -> bytes:
    number = len(pieces)
    header = pack("B", 0x90 | number) if number < 16 else pack(">BI", 0xDD, number)
    return header + b"".join(pieces)


def _encode_item(item: Item) -> bytes:
    if isinstance(item, _MESSAGES):
        return encode(item)
    return _encode((_KIND[type(item)], *map(_packed, item)))


def _packed(field: Any) -> Any:
    if type(field) is int and field >= 1 << 64:
        return field.to_bytes((field.bit_length() + 7) // 8, "little")
    if isinstance(field, tuple):
        return [[name, _packed(count)] for name, count in field]
    return field


def _items(data: bytes) -> Iterator[Item]:
    if len(data) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(data)} bytes: the limit is {MAX_FRAME_BYTES}")
    try:
        plain = _decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not a frame: {error}") from error
    for item in plain:
        yield _word(item) if item and _is_word(item[0]) else _message(item)


def _is_word(kind: object) -> bool:
    return type(kind) is int and len(_MESSAGES) <= kind < len(_MESSAGES) + len(_WORDS)


def _travels(item: Item, up: bool) -> bool:
    if (type(item) in _UP) is not up:
        raise ProtocolError(f"a {type(item).__name__} does not travel {'up' if up else 'down'}")
    return True


def _message(plain: list[Any]) -> Message:
    message = from_array(plain)
    require_name(message.counter, "counter")
    for field in message[1:]:
        if isinstance(field, int) and field > MAX_NUMBER:
            raise ProtocolError(f"a number of {field.bit_length()} bits: the limit is 255")
    return message


def _word(plain: list[Any]) -> Item:
    word = _WORDS[plain[0] - len(_MESSAGES)]
    if len(plain) != len(word._fields) + 1:
        raise ProtocolError(f"a {word.__name__} has {len(word._fields)} fields, not {len(plain) - 1}")
    return word(*(_CHECKS[name](value, name) for name, value in zip(word._fields, plain[1:], strict=True)))


def _number(value: object, name: str) -> int:
    if isinstance(value, bytes):
        value = int.from_bytes(value, "little")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_NUMBER:
        raise ProtocolError(f"{name} must be an integer from 0 to 2^255 - 1")
    return value


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ProtocolError(f"{name} must be true or false")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ProtocolError(f"{name} must be a text")
    return value


def _counts(value: object, name: str) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise ProtocolError(f"{name} must be pairs of a counter and a number")
    return tuple((require_name(counter, "counter"), _number(count, name)) for counter, count in value)


_CHECKS: dict[str, Callable[[object, str], Any]] = {
    "counter": require_name,
    "site": require_name,
    "reason": _text,
    "keep_count": _flag,
    "known_counts": _counts,
    **dict.fromkeys(("version", "incarnation", "round", "count", "number", "heartbeat_ms"), _number),
}
