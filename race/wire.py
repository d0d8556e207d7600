"""Bytes of a TCP connection as the kernel counts them (Linux: TCP_INFO), CPU time to subtract, free ports."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

_RECEIVED, _SENT = 128, 200  # offsets of tcpi_bytes_received and tcpi_bytes_sent in struct tcp_info
_SIZE = 208


def bytes_of(connection: socket.socket) -> int:
    """Payload in both directions since the connection was made, including TLS, HTTP and WebSocket.

    Headers of TCP and IP, 40 bytes or more for each packet, are not included for any contestant.
    """
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    received, sent = struct.unpack_from("Q", info, _RECEIVED)[0], struct.unpack_from("Q", info, _SENT)[0]
    return int(received + sent)


class Stopwatch:
    """CPU time of this process that was spent on measuring, and not on counting."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The block is the race's own work. Only this thread's time: other threads may count meanwhile."""
        begin = time.thread_time()
        try:
            yield
        finally:
            self.seconds += time.thread_time() - begin


ASIDE = Stopwatch()


def free_port() -> int:
    """An unused port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
