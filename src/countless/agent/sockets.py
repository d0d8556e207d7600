"""The sockets of an agent: UDP and unix datagrams, and HTTP.

The kernel drops UDP datagrams that do not fit into the receive buffer, without an error. So the buffer is as large as
the system allows, one call reads everything that waits, and a metric has the number of drops. A unix socket makes the
sender wait instead.
"""

import errno
import os
import socket
import stat
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from struct import unpack
from time import monotonic

from countless.agent.intake import Intake
from countless.agent.statsd import Fault
from countless.errors import CountlessError, InvalidParameter
from countless.unread import limit_unread
from countless.wire.nats_url import netloc

MAX_DATAGRAM_BYTES = 1 << 16  # UDP has no larger datagrams
_RECEIVE_BUFFER_BYTES = 8 << 20  # Linux gives no more than net.core.rmem_max
_MAX_BATCH_BYTES, _MAX_BATCH_DATAGRAMS = 1 << 20, 1024  # read in one call: other connections wait meanwhile
MAX_PORT = 65_535
BACKLOG = 128  # connections that wait to be accepted
_MEMORY_INFO, _DROPS = 55, 8  # SO_MEMINFO of Linux 4.12, and the place of the drops in it


class CannotListen(CountlessError):
    """An address is in use or does not exist here; the message says which and why."""


class Receiver:
    def __init__(self, where: str, endpoint: socket.socket, path: Path | None = None) -> None:
        self.where = where
        self.socket = endpoint
        self.datagrams = 0
        self._path = path
        endpoint.setblocking(False)
        with suppress(OSError):
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)

    def read(self, intake: Intake) -> bool:
        """Count the datagrams that wait, up to a limit. Returns whether there were any."""
        batch: list[bytes] = []
        size = 0
        with suppress(BlockingIOError):
            while len(batch) < _MAX_BATCH_DATAGRAMS and size < _MAX_BATCH_BYTES:
                datagram = self.socket.recv(MAX_DATAGRAM_BYTES + 1)
                self.datagrams += 1
                if len(datagram) > MAX_DATAGRAM_BYTES:
                    intake.drop(Fault.TOO_LONG, datagram)
                    datagram = b""
                batch.append(datagram)
                size += len(datagram)
        intake.datagrams(batch)
        return bool(batch)

    def drain(self, intake: Intake, seconds: float = 1.0) -> None:
        """Count all that has arrived, for at most this long: a sender may be as fast as the reader."""
        deadline = monotonic() + seconds
        while self.read(intake) and monotonic() < deadline:
            pass

    @property
    def buffer(self) -> int:
        return self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    @property
    def kernel_drops(self) -> int | None:
        """Datagrams dropped by the kernel; None where the system does not say."""
        try:
            info = self.socket.getsockopt(socket.SOL_SOCKET, _MEMORY_INFO, 4 * (_DROPS + 1))
            return int(unpack(f"={_DROPS + 1}I", info)[_DROPS])
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        self.socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def udp(host: str, port: int, *, allow_remote: bool = False) -> Receiver:
    family, address = resolve("statsd-host", host, port, allow_remote)
    endpoint = socket.socket(family, socket.SOCK_DGRAM)
    try:
        endpoint.bind(address)
    except OSError as error:
        endpoint.close()
        raise CannotListen(f"cannot listen on udp://{netloc(*address)}: {error.strerror}") from None
    return Receiver(f"udp://{netloc(*endpoint.getsockname()[:2])}", endpoint)


def unix(path: Path) -> Receiver:
    """Listen on a unix socket. Every local user who can reach the directory can count, as on loopback."""
    return Receiver(f"unix:{path}", _bind_unix(path, socket.SOCK_DGRAM), path)


def http(host: str, port: int, *, allow_remote: bool = False) -> socket.socket:
    family, address = resolve("http-host", host, port, allow_remote)
    try:
        listener = socket.create_server(address, family=family)
    except OSError as error:
        raise CannotListen(f"cannot listen on http://{netloc(*address)}: {error.strerror}") from None
    limit_unread(listener)
    return listener


def http_unix(path: Path) -> socket.socket:
    endpoint = _bind_unix(path, socket.SOCK_STREAM)
    endpoint.listen(BACKLOG)
    return endpoint


def http_where(endpoint: socket.socket) -> str:
    if endpoint.family == socket.AF_UNIX:
        return f"http+unix:{endpoint.getsockname()}"
    return f"http://{netloc(*endpoint.getsockname()[:2])}"


def resolve(option: str, host: str, port: int, allow_remote: bool) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    except (OSError, UnicodeError) as error:
        raise InvalidParameter(option, host, f"an address of this machine ({error})") from None
    place = str(address[0])
    if not (allow_remote or ip_address(place.partition("%")[0]).is_loopback):
        raise InvalidParameter(
            option,
            host,
            "a loopback address, because every program that reaches the agent can count (--allow-plaintext confirms "
            "that something else, such as a private network, protects it)",
        )
    return family, (place, port)


def _bind_unix(path: Path, kind: socket.SocketKind) -> socket.socket:
    endpoint = socket.socket(socket.AF_UNIX, kind)
    try:
        _remove_left_over(path, kind)
        endpoint.bind(str(path))
        path.chmod(0o666)
    except OSError as error:
        endpoint.close()
        raise CannotListen(f"cannot listen on unix:{path}: {error.strerror or error}") from None
    return endpoint


def _remove_left_over(path: Path, kind: socket.SocketKind) -> None:
    """Remove the socket file of an agent that was killed: a connection to it is refused."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        with socket.socket(socket.AF_UNIX, kind) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
