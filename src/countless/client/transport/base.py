"""The interface between a client's thread and the network.

Counters and budgets are spread over *shards*, and a client has one session with each shard that owns any of its own. A
coordinator behind a WebSocket is one shard; behind a NATS broker there are as many as the coordinators agreed on.
"""

import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from countless.wire.keys import Key


class ConnectionLost(OSError):
    """The connection could not be made, or has ended; the message says why."""


Send = Callable[[bytes], None]
Received = list[bytes] | ConnectionLost  # frames, or why the stream has ended
EMPTY: list[bytes] = []


def read_available(connection: socket.socket) -> bytes:
    """Wait for data; empty if the peer has closed. With TLS, all that is decrypted: `select` does not see it."""
    data = connection.recv(1 << 16)
    while isinstance(connection, ssl.SSLSocket) and connection.pending():
        data += connection.recv(1 << 16)
    return data


class Transport(Protocol):
    """Moves frames between one thread and the coordinators. Every failure is a `ConnectionLost`."""

    def shard_count(self) -> int:
        """May ask the coordinators, and block for some seconds."""

    def shard_of(self, key: Key) -> int:
        """The shard that owns it. Call it after `shard_count`."""

    def open_stream(self, shard: int) -> Send:
        """Start a fresh stream of frames with a shard and return the function that sends one frame on it."""

    def sockets(self) -> list[socket.socket]: ...

    def receive(self) -> dict[int, Received]:
        """Return the frames that have arrived, by shard. Call it when a socket is readable."""

    def close_stream(self, shard: int) -> None: ...

    def close(self) -> None:
        """End all streams and the connection."""

    def abandon(self) -> None:
        """Close the sockets without sending anything: in a forked child, the peer belongs to the parent."""
