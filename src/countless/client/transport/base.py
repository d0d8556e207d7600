"""What moves frames between a client's thread and coordinators: a WebSocket to one, or a broker with many behind it.

Counters are spread over *shards*, and with each shard that has any of its counters a client holds a conversation, on a
line of its own. A coordinator behind a WebSocket is one shard; over NATS there are as many as the coordinators agreed
on (`client/transport/nats_transport.py`).
"""

import socket
from collections.abc import Callable
from typing import Protocol

from countless.client.transport.websocket import ConnectionLost, Endpoint, WebSocketConnection
from countless.wire.nats_url import Broker

News = list[bytes] | ConnectionLost  # frames, or why the line is over
NOTHING: list[bytes] = []


class Carrier(Protocol):
    """Moves frames between this process and coordinators. Belongs to the client's thread."""

    def shards(self) -> int:
        """Over how many shards counters are spread. May have to ask; a LinkError if nobody answers."""

    def shard_of(self, counter: str) -> int:
        """Which of them has this counter."""

    def open(self, shard: int) -> Callable[[bytes], None]:
        """A fresh line to a shard; what sends a frame on it."""

    def sockets(self) -> list[socket.socket]:
        """What to wait for."""

    def receive(self) -> dict[int, News]:
        """By shard, what has arrived, or why its line is over: call it when a socket is readable."""

    def hang_up(self, shard: int) -> None:
        """The line of this shard is not needed any more."""

    def close(self) -> None:
        """All of it."""

    def drop(self) -> None:
        """Let go without a word: after a fork the word would be the parent's."""


class WebSocketCarrier:
    """One coordinator, one connection."""

    def __init__(self, place: Endpoint, token: str | None) -> None:
        self._place = place
        self._token = token
        self._link: WebSocketConnection | None = None

    def shards(self) -> int:
        """One."""
        return 1

    def shard_of(self, counter: str) -> int:
        """That one."""
        return 0

    def open(self, shard: int) -> Callable[[bytes], None]:
        """A new connection."""
        self._link = WebSocketConnection(self._place, self._token)
        return self._link.send

    def sockets(self) -> list[socket.socket]:
        """The socket, while there is one."""
        return [self._link.socket] if self._link else []

    def receive(self) -> dict[int, News]:
        """What has arrived."""
        try:
            return {0: self._link.receive() if self._link else NOTHING}
        except ConnectionLost as error:
            return {0: error}

    def hang_up(self, shard: int) -> None:
        """The connection is the line."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def close(self) -> None:
        """The same."""
        self.hang_up(0)

    def drop(self) -> None:
        """Only the socket."""
        if self._link is not None:
            self._link.abandon()
            self._link = None


def carrier_to(place: Endpoint | Broker, token: str | None, site: str) -> Carrier:
    """The one for this place."""
    if isinstance(place, Endpoint):
        return WebSocketCarrier(place, token)
    from countless.client.transport.nats_transport import NatsCarrier  # most programs have no use for it

    return NatsCarrier(place, site)
