"""The client side of NATS itself, sans-IO: bytes in, events out. What a site needs of the protocol, and no more.

The official library is for event loops, and a site has none: one thread, one socket, nothing to look after when a
process forks. The protocol is lines of text, documented at docs.nats.io under "client protocol".
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from countless.errors import ProtocolError

_LONGEST_LINE = 1 << 16  # an INFO lists every server of a cluster
_BREAK = b"\r\n"
PING, PONG = b"PING\r\n", b"PONG\r\n"


class Info(NamedTuple):
    """The broker introduces itself, and again whenever its cluster changes."""

    fields: dict[str, Any]


class Delivery(NamedTuple):
    """A message for one of our subscriptions. `status` is set if the broker itself speaks: 503, nobody listens."""

    subscription: int
    subject: str
    payload: bytes
    status: int = 0


class Pinged(NamedTuple):
    """To be answered with a PONG."""


class Ponged(NamedTuple):
    """Everything sent before the PING has been taken in."""


class Complaint(NamedTuple):
    """The broker does not like something."""

    reason: str


Event = Info | Delivery | Pinged | Ponged | Complaint


def connect(options: dict[str, Any]) -> bytes:
    """The first line of a client."""
    return b"CONNECT " + json.dumps(options).encode() + _BREAK


def subscribe(subject: str, number: int) -> bytes:
    """From now on; deliveries carry the number."""
    return f"SUB {subject} {number}\r\n".encode()


def unsubscribe(number: int) -> bytes:
    """No more."""
    return f"UNSUB {number}\r\n".encode()


def publish(subject: str, payload: bytes, reply: str = "") -> bytes:
    """A message; with a reply subject the broker says so if nobody listens."""
    return f"PUB {subject} {reply + ' ' if reply else ''}{len(payload)}\r\n".encode() + payload + _BREAK


class Parser:
    """What has arrived and is not complete yet."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Event]:
        """All events that are complete now."""
        self._data += data
        while True:
            end = self._data.find(_BREAK)
            if end < 0:
                if len(self._data) > _LONGEST_LINE:
                    raise ProtocolError("not a NATS server: a line without an end")
                return
            line = self._data[:end].decode(errors="replace")
            event = self._event(line, end + len(_BREAK))
            if event is None:
                return
            if not isinstance(event, str):
                yield event

    def _event(self, line: str, start: int) -> Event | str | None:
        """None: not all there yet. A text: nothing to tell."""
        verb, _, rest = line.partition(" ")
        verb = verb.upper()
        if verb in ("MSG", "HMSG"):
            return self._delivery(verb, rest.split(), start)
        del self._data[:start]
        if verb == "INFO":
            return Info(_fields(rest))
        if verb in ("PING", "PONG"):
            return Pinged() if verb == "PING" else Ponged()
        if verb == "-ERR":
            return Complaint(rest.strip("' "))
        if verb == "+OK":
            return verb
        raise ProtocolError(f"not a NATS server: it says {line[:50]!r}")

    def _delivery(self, verb: str, words: list[str], start: int) -> Delivery | None:
        try:
            subject, number, *_, size = words
            head = int(words[-2]) if verb == "HMSG" else 0
            end = start + int(size)
            if len(self._data) < end + len(_BREAK):
                return None
            headers, payload = bytes(self._data[start : start + head]), bytes(self._data[start + head : end])
            del self._data[: end + len(_BREAK)]
            return Delivery(int(number), subject, payload, _status(headers))
        except ValueError:
            raise ProtocolError(f"not a NATS server: it says {verb} {' '.join(words)[:50]!r}") from None


def _fields(text: str) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(text)
    except ValueError:
        raise ProtocolError(f"not a NATS server: INFO {text[:50]!r}") from None
    return fields


def _status(headers: bytes) -> int:
    """`NATS/1.0 503` and so on; 0 if it is a message like any other."""
    word = headers.partition(_BREAK)[0].split()[1:2]
    return int(word[0]) if word else 0
