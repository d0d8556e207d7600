"""Where datagrams arrive: UDP, and unix sockets for those who want to lose nothing.

UDP drops what finds no room in the receive buffer, and tells nobody. So the buffer is as large as the system allows,
everything that waits is read at once, and what the kernel dropped all the same is known to whoever asks. A unix socket
makes the sender wait instead.
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
from countless.agent.statsd import Reason
from countless.errors import CountlessError, InvalidParameter

MOST_BYTES = 1 << 16  # of a datagram; UDP has no larger ones
_BUFFER = 8 << 20  # bytes to ask for; Linux gives no more than net.core.rmem_max
_BATCH_BYTES, _BATCH = 1 << 20, 1024  # to read before anybody else has a turn
_MEMORY_INFO, _DROPS = 55, 8  # SO_MEMINFO of Linux 4.12, and the place of the drops in it


class CannotListen(CountlessError):
    """An address is taken, or is none of ours; the message says which and why."""


class Receiver:
    """A socket that datagrams arrive at, on their way to the intake."""

    def __init__(self, where: str, endpoint: socket.socket, path: Path | None = None) -> None:
        self.where = where
        self.socket = endpoint
        self.datagrams = 0
        self._path = path
        endpoint.setblocking(False)
        with suppress(OSError):
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)

    def read(self, intake: Intake) -> bool:
        """Count what waits, up to a limit; whether anything did."""
        batch: list[bytes] = []
        size = 0
        with suppress(BlockingIOError):
            while len(batch) < _BATCH and size < _BATCH_BYTES:
                datagram = self.socket.recv(MOST_BYTES + 1)
                self.datagrams += 1
                if len(datagram) > MOST_BYTES:
                    intake.drop(Reason.TOO_LONG, datagram)
                    datagram = b""
                batch.append(datagram)
                size += len(datagram)
        intake.datagrams(batch)
        return bool(batch)

    def drain(self, intake: Intake, seconds: float = 1.0) -> None:
        """Count all that has arrived. Not for ever: somebody may be sending as fast as we read."""
        deadline = monotonic() + seconds
        while self.read(intake) and monotonic() < deadline:
            pass

    @property
    def buffer(self) -> int:
        """Bytes of the receive buffer."""
        return self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    @property
    def kernel_drops(self) -> int | None:
        """Datagrams that found no room, where the system tells."""
        try:
            info = self.socket.getsockopt(socket.SOL_SOCKET, _MEMORY_INFO, 4 * (_DROPS + 1))
            return int(unpack(f"={_DROPS + 1}I", info)[_DROPS])
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Let go of the address."""
        self.socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def udp(host: str, port: int, *, anywhere: bool = False) -> Receiver:
    """Listen for datagrams from the network."""
    family, address = _resolve("statsd-host", host, port, anywhere)
    endpoint = socket.socket(family, socket.SOCK_DGRAM)
    try:
        endpoint.bind(address)
    except OSError as error:
        endpoint.close()
        raise CannotListen(f"cannot listen on udp://{_netloc(address)}: {error.strerror}") from None
    return Receiver(f"udp://{_netloc(endpoint.getsockname())}", endpoint)


def unix(path: Path) -> Receiver:
    """Listen for datagrams from this machine. Whoever may see the directory may count, as on loopback."""
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        _remove_left_over(path)
        endpoint.bind(str(path))
        path.chmod(0o666)
    except OSError as error:
        endpoint.close()
        raise CannotListen(f"cannot listen on unix:{path}: {error.strerror or error}") from None
    return Receiver(f"unix:{path}", endpoint, path)


def http(host: str, port: int, *, anywhere: bool = False) -> socket.socket:
    """Listen for requests."""
    family, address = _resolve("http-host", host, port, anywhere)
    try:
        return socket.create_server(address, family=family)
    except OSError as error:
        raise CannotListen(f"cannot listen on http://{_netloc(address)}: {error.strerror}") from None


def http_where(endpoint: socket.socket) -> str:
    """The address for those who send requests."""
    return f"http://{_netloc(endpoint.getsockname())}"


def _resolve(option: str, host: str, port: int, anywhere: bool) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    except (OSError, UnicodeError) as error:
        raise InvalidParameter(option, host, f"an address of this machine ({error})") from None
    place = str(address[0])
    if not (anywhere or ip_address(place.partition("%")[0]).is_loopback):
        raise InvalidParameter(
            option,
            host,
            "a loopback address, because whoever reaches the agent may count (--allow-plaintext says that something "
            "else, such as a private network, keeps strangers out)",
        )
    return family, (place, port)


def _netloc(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _remove_left_over(path: Path) -> None:
    """A socket that nobody listens on any more is what an agent that was killed has left behind."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
