"""Bytes on the wire, as the kernel counted them for a TCP connection (Linux: TCP_INFO), and other small things."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

_RECEIVED, _SENT = 128, 200  # offsets of tcpi_bytes_received and tcpi_bytes_sent in struct tcp_info
_SIZE = 208


def bytes_of(connection: socket.socket) -> int:
    """Payload in both directions since the connection was made, with what TLS, HTTP or WebSocket put around it.

    Headers of TCP and IP are not in it: 40 bytes or more a packet, for everybody.
    """
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    received, sent = struct.unpack_from("Q", info, _RECEIVED)[0], struct.unpack_from("Q", info, _SENT)[0]
    return int(received + sent)


class Stopwatch:
    """CPU time of this process that was spent on looking on, and not on counting."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens in here is the race's own work. Only this thread's: others may be counting meanwhile."""
        begin = time.thread_time()
        try:
            yield
        finally:
            self.seconds += time.thread_time() - begin


ASIDE = Stopwatch()


def free_port() -> int:
    """A port on loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
