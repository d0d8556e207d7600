"""The client side of the NATS protocol, sans-IO: bytes in, events out. Only the part that a site needs.

The official library needs an event loop. A site has one thread and one socket, and it must survive `fork`. The protocol
is text, documented at docs.nats.io under "client protocol".
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from countless.errors import ProtocolError

_MAX_CONTROL_LINE_BYTES = 1 << 16  # an INFO lists every node of a cluster
_LINE_END = b"\r\n"
PING, PONG = b"PING\r\n", b"PONG\r\n"


class Info(NamedTuple):
    """Sent on connect, and again when the broker's cluster changes."""

    fields: dict[str, Any]


class Delivery(NamedTuple):
    """A message for one of our subscriptions. `status` is set by the broker itself: 503 means no subscriber."""

    subscription: int
    subject: str
    payload: bytes
    status: int = 0


class Ping(NamedTuple):
    """Must be answered with a PONG."""


class Pong(NamedTuple):
    """The broker has processed everything that was sent before the PING."""


class ServerError(NamedTuple):
    reason: str


Event = Info | Delivery | Ping | Pong | ServerError


def connect(options: dict[str, Any]) -> bytes:
    return b"CONNECT " + json.dumps(options).encode() + _LINE_END


def subscribe(subject: str, number: int) -> bytes:
    """Deliveries of this subscription carry `number`."""
    return f"SUB {subject} {number}\r\n".encode()


def unsubscribe(number: int) -> bytes:
    return f"UNSUB {number}\r\n".encode()


def publish(subject: str, payload: bytes, reply: str = "") -> bytes:
    """With a reply subject, the broker sends a status 503 there if the subject has no subscriber."""
    return f"PUB {subject} {reply + ' ' if reply else ''}{len(payload)}\r\n".encode() + payload + _LINE_END


class Parser:
    """Buffers what is not complete yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Event]:
        self._buffer += data
        while True:
            end = self._buffer.find(_LINE_END)
            if end < 0:
                if len(self._buffer) > _MAX_CONTROL_LINE_BYTES:
                    raise ProtocolError("not a NATS server: a control line without an end")
                return
            line = self._buffer[:end].decode(errors="replace")
            event = self._parse(line, end + len(_LINE_END))
            if event is None:
                return
            if not isinstance(event, str):
                yield event

    def _parse(self, line: str, payload_start: int) -> Event | str | None:
        """None: the payload is not complete. A string: a line without an event."""
        verb, _, rest = line.partition(" ")
        verb = verb.upper()
        if verb in ("MSG", "HMSG"):
            return self._parse_delivery(verb, rest.split(), payload_start)
        del self._buffer[:payload_start]
        if verb == "INFO":
            return Info(_parse_info(rest))
        if verb in ("PING", "PONG"):
            return Ping() if verb == "PING" else Pong()
        if verb == "-ERR":
            return ServerError(rest.strip("' "))
        if verb == "+OK":
            return verb
        raise ProtocolError(f"not a NATS server: {line[:50]!r}")

    def _parse_delivery(self, verb: str, arguments: list[str], start: int) -> Delivery | None:
        try:
            subject, number, *_, size = arguments
            header_bytes = int(arguments[-2]) if verb == "HMSG" else 0
            end = start + int(size)
            if len(self._buffer) < end + len(_LINE_END):
                return None
            headers = bytes(self._buffer[start : start + header_bytes])
            payload = bytes(self._buffer[start + header_bytes : end])
            del self._buffer[: end + len(_LINE_END)]
            return Delivery(int(number), subject, payload, _parse_status(headers))
        except ValueError:
            raise ProtocolError(f"not a NATS server: {verb} {' '.join(arguments)[:50]!r}") from None


def _parse_info(text: str) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(text)
    except ValueError:
        raise ProtocolError(f"not a NATS server: INFO {text[:50]!r}") from None
    return fields


def _parse_status(headers: bytes) -> int:
    """503 for `NATS/1.0 503`; 0 if the headers have no status."""
    status = headers.partition(_LINE_END)[0].split()[1:2]
    return int(status[0]) if status else 0
