"""Countless over NATS: the subjects, and the bytes around a frame. No I/O.

| subject | published by | payload |
|---|---|---|
| `countless.shards` | a site, as a request | empty; the reply is the protocol version and the number of shards |
| `countless.up.SHARD.SITE.STREAM` | a site | a sequence number, then a frame; or `CLOSE` |
| `countless.down.SHARD.SITE.STREAM` | the shard's owner | `StreamInfo`, then `DataFrame`s; or `StreamClosed` |
| `countless.call.SHARD` | the shard's new owner | its ownership id: sites of this shard open a new stream |
| `countless.log.SHARD` | the shard's owner | records of the shard's log (JetStream) |
| `countless.http.SHARD` | another coordinator | an HTTP request for a counter or budget of this shard |

A *stream* is a logical connection between one site and one shard. It starts with a `Hello` and ends when either side
closes it or misses a frame. NATS delivers at most once and does not report what it dropped, so both sides number their
frames. On a gap the stream is closed; on the next stream the site sends its counts again. Counts are cumulative, so a
duplicate is harmless.

An *ownership id* names one coordinator's ownership of one shard, from take-over to release.
"""

from hashlib import sha256
from struct import Struct, error
from typing import NamedTuple

import msgspec

from countless.errors import ProtocolError
from countless.wire.keys import Key

PROTOCOL_VERSION = 1  # of everything in this module
SHARDS_SUBJECT = "countless.shards"
DOWNLINK_PREFIX = "countless.down."
LOG_SUBJECTS = "countless.log.*"
_TOKEN_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_MAX_TOKEN_CHARS = 200  # a subject has to fit into the broker's control line, 4096 bytes
MAX_UPLINK_CHARS = 300  # else the downlink subject of a hostile site may not fit


def shard_of(key: Key, shards: int) -> int:
    """All series and windows of a counter share a shard. So do all budgets with the same part before the first slash:
    `keys/*` and the names that it stands for.

    >>> from countless.wire.keys import BUDGET, COUNTER
    >>> shard_of(Key(COUNTER, "requests"), 16) == shard_of(Key(COUNTER, 'requests{route="/a"}', "hour", 5), 16)
    True
    >>> shard_of(Key(BUDGET, "keys/*"), 16) == shard_of(Key(BUDGET, "keys/7f3a"), 16)
    True
    """
    return int.from_bytes(sha256(key.root.encode()).digest()[:8]) % shards


def subject_token(name: str) -> str:
    """A site's name as one token of a subject; a long one as its digest.

    >>> subject_token("web-1"), subject_token("web-1.example")
    ('web-1', 'web-1=2Eexample')
    """
    text = "".join(char if char in _TOKEN_CHARS else "".join(f"={byte:02X}" for byte in char.encode()) for char in name)
    return text if len(text) <= _MAX_TOKEN_CHARS else f"=={sha256(name.encode()).hexdigest()}"


def uplink_subject(shard: int | str, site_token: str, stream: str) -> str:
    return f"countless.up.{shard}.{site_token}.{stream}"


def downlink_subject(shard: int | str, site_token: str, stream: str) -> str:
    return f"{DOWNLINK_PREFIX}{shard}.{site_token}.{stream}"


def takeover_subject(shard: int) -> str:
    return f"countless.call.{shard}"


def log_subject(shard: int) -> str:
    return f"countless.log.{shard}"


def forward_subject(shard: int) -> str:
    return f"countless.http.{shard}"


# From the site

_uplink_header = Struct(">I")
_CLOSED = 0xFFFFFFFF  # instead of a sequence number
CLOSE = _uplink_header.pack(_CLOSED)  # the site closes its stream


def encode_uplink(number: int, frame: bytes) -> bytes:
    """A frame of a site. Numbers start at 0, the frame with the `Hello`."""
    return _uplink_header.pack(number % _CLOSED) + frame


def decode_uplink(data: bytes) -> tuple[int, bytes]:
    try:
        return _uplink_header.unpack_from(data)[0], data[_uplink_header.size :]
    except error:
        raise ProtocolError("a message without a sequence number") from None


# From the coordinator


class StreamInfo(NamedTuple):
    """The first message of a stream: the ownership in which the `Hello` was answered."""

    ownership_id: str


class DataFrame(NamedTuple):
    """A frame. Numbers start at 1."""

    number: int
    frame: bytes


class StreamClosed(NamedTuple):
    """The last message of a stream."""

    reason: str


# The sequence number, and a number that is 0. Earlier coordinators sent some round starts to groups of sites, on other
# subjects (`countless.round.>`), and counted them there; now every frame goes to the site's own subject.
_downlink_header = Struct(">II")
_INFO = 0  # instead of a sequence number
# The ownership id, and the place and key of the stream in such a group: earlier clients expect all three.
_InfoFields = tuple[str, int, bytes]


def encode_info(info: StreamInfo) -> bytes:
    fields: _InfoFields = (info.ownership_id, 0, b"")
    return _downlink_header.pack(_INFO, 0) + msgspec.msgpack.encode(fields)


def encode_data(data: DataFrame) -> bytes:
    return _downlink_header.pack(data.number % _CLOSED or 1, 0) + data.frame


def encode_closed(closed: StreamClosed) -> bytes:
    return _downlink_header.pack(_CLOSED, 0) + closed.reason.encode()


def decode_downlink(data: bytes) -> StreamInfo | DataFrame | StreamClosed:
    try:
        number, group_starts = _downlink_header.unpack_from(data)
        rest = data[_downlink_header.size :]
        if number == _CLOSED:
            return StreamClosed(rest.decode())
        if number == _INFO:
            return StreamInfo(msgspec.msgpack.decode(rest, type=_InfoFields)[0])
    except (error, UnicodeDecodeError, msgspec.DecodeError) as problem:
        raise ProtocolError(f"not a message of a coordinator: {problem}") from None
    if group_starts:
        raise ProtocolError("the coordinator sends round starts to groups of sites: upgrade the coordinator")
    return DataFrame(number, rest)
