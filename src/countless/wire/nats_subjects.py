"""Countless over NATS: the subjects, and what stands around a frame there. Bytes and names only; nobody connects here.

| subject | who publishes | what |
|---|---|---|
| `countless.shards` | anybody asks | how many shards there are |
| `countless.up.SHARD.SITE.LINE` | a site | a number, then a frame |
| `countless.down.SHARD.SITE.LINE` | the shard's coordinator | two numbers, then a frame, or why the line is closed |
| `countless.call.SHARD` | the shard's coordinator | the name of its session: whoever counts in this shard, say hello |
| `countless.round.SHARD.SESSION.GROUP` | the shard's coordinator | a round start for many, fanned out by the broker |

A *line* is what a connection is elsewhere: it begins with a hello and ends when either side says so or misses a frame.
NATS delivers at most once and says nothing of what it dropped, so frames are numbered: the site numbers its frames, and
each frame down says which one it is and how many round starts have been fanned out to this line so far. Whoever finds a
gap ends the line; on the next one the site says everything again.
"""

from hashlib import sha256
from struct import Struct, error
from typing import NamedTuple

import msgspec

from countless.errors import ProtocolError

LAYOUT = 1  # of all that is written here
SHARDS = "countless.shards"
EVERYBODY = "all"
GROUP = 64  # lines that share a packet of offsets: each of them is sent those of all
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_LONGEST_TOKEN = 200  # a subject has to fit into the broker's control line, 4096 bytes
_up, _down = Struct(">I"), Struct(">II")
_CARD, _CLOSED = 0, 0xFFFFFFFF
_encode = msgspec.msgpack.Encoder().encode


def shard_of(counter: str, shards: int) -> int:
    """Where a counter lives: the same for everybody, and for all series of one counter.

    >>> shard_of("requests", 16) == shard_of('requests{route="/a"}', 16)
    True
    """
    name = counter.partition("{")[0]
    return int.from_bytes(sha256(name.encode()).digest()[:8]) % shards


def token(name: str) -> str:
    """A site's name as one token of a subject; a long one as its digest.

    >>> token("web-1"), token("web-1.example")
    ('web-1', 'web-1=2Eexample')
    """
    text = "".join(sign if sign in _PLAIN else "".join(f"={byte:02X}" for byte in sign.encode()) for sign in name)
    return text if len(text) <= _LONGEST_TOKEN else f"=={sha256(name.encode()).hexdigest()}"


def up(shard: int | str, site: str, line: str) -> str:
    """Where a site speaks. `site` is a token, or a wildcard."""
    return f"countless.up.{shard}.{site}.{line}"


def down(shard: int | str, site: str, line: str) -> str:
    """Where it is spoken to."""
    return f"countless.down.{shard}.{site}.{line}"


def call(shard: int) -> str:
    """Where a coordinator says that it has taken a shard over."""
    return f"countless.call.{shard}"


def rounds(shard: int, session: str, group: int | str) -> str:
    """Where round starts are fanned out. The session is in it: seats are numbered anew by each coordinator."""
    return f"countless.round.{shard}.{session}.{group}"


# Around a frame

GOODBYE = _up.pack(_CLOSED)  # a site ends its line


def pack_up(number: int, frame: bytes) -> bytes:
    """What a site publishes: its frames are numbered from 0, the hello."""
    return _up.pack(number % _CLOSED) + frame


def unpack_up(data: bytes) -> tuple[int, bytes]:
    """The number and the frame."""
    try:
        return _up.unpack_from(data)[0], data[_up.size :]
    except error:
        raise ProtocolError("a message without a number") from None


class Card(NamedTuple):
    """The first thing a line is sent: where its round starts will be, and the key to them."""

    session: str
    seat: int
    key: bytes

    @property
    def group(self) -> int:
        """With whom it shares packets."""
        return self.seat // GROUP


class Closed(NamedTuple):
    """The line is over."""

    reason: str


class Words(NamedTuple):
    """A frame down, with its number and that of the round starts fanned out before it."""

    number: int
    fanned: int
    frame: bytes


def pack_card(card: Card) -> bytes:
    """Message 0 of a line."""
    return _down.pack(_CARD, 0) + _encode(card)


def pack_closed(reason: str) -> bytes:
    """The last message of a line."""
    return _down.pack(_CLOSED, 0) + reason.encode()


def pack_words(words: Words) -> bytes:
    """Every other message of a line; numbers from 1."""
    return _down.pack(words.number % _CLOSED or 1, words.fanned & 0xFFFFFFFF) + words.frame


def unpack_down(data: bytes) -> Card | Closed | Words:
    """Whichever it is."""
    try:
        number, fanned = _down.unpack_from(data)
        rest = data[_down.size :]
        if number == _CLOSED:
            return Closed(rest.decode())
        return _cards.decode(rest) if number == _CARD else Words(number, fanned, rest)
    except (error, UnicodeDecodeError, msgspec.DecodeError) as problem:
        raise ProtocolError(f"not a message of a coordinator: {problem}") from None


_cards = msgspec.msgpack.Decoder(Card)
