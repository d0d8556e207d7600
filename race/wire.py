"""Bytes and packets of TCP connections as Linux counts them (TCP_INFO), CPU time to subtract, free ports."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_RECEIVED, _SENT = 128, 200  # offsets of tcpi_bytes_received and tcpi_bytes_sent in struct tcp_info
_PACKETS = 152  # of tcpi_data_segs_in, and of tcpi_data_segs_out after it
_SIZE = 208


def bytes_of(connection: socket.socket) -> int:
    """Payload in both directions since the connection was made, including TLS, HTTP and WebSocket.

    Headers of TCP and IP, 40 bytes or more for each packet, are not included for any contestant.
    """
    return _bytes(_info(connection))


def traffic_to(port: int) -> tuple[int, int]:
    """Packets with data and their bytes, in both directions, on this process's open connections to a local port."""
    packets = size = 0
    for file in Path("/proc/self/fd").iterdir():
        if not file.is_socket():
            continue
        with socket.fromfd(int(file.name), socket.AF_INET, socket.SOCK_STREAM) as connection:
            if _peer(connection) == ("127.0.0.1", port):
                info = _info(connection)
                packets += sum(struct.unpack_from("II", info, _PACKETS))
                size += _bytes(info)
    return packets, size


def _peer(connection: socket.socket) -> object:
    try:
        return connection.getpeername()
    except OSError:  # it listens, or its peer is gone
        return None


def _info(connection: socket.socket) -> bytes:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)


def _bytes(info: bytes) -> int:
    return int(struct.unpack_from("Q", info, _RECEIVED)[0] + struct.unpack_from("Q", info, _SENT)[0])


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
