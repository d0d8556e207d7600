"""Real sockets without an agent: drops are counted, and an address in use is not taken."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import countless
from countless.agent import sockets
from countless.agent.intake import Intake
from countless.agent.sockets import CannotListen, Receiver
from countless.agent.statsd import Fault
from countless.errors import InvalidParameter
from countless.unread import UNREAD_TIMEOUT_S


@pytest.fixture
def intake(monkeypatch: pytest.MonkeyPatch) -> Intake:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    return Intake(countless.connect("http://127.0.0.1:9", site="here"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def udp(stack: ExitStack) -> tuple[Receiver, socket.socket]:
    receiver = sockets.udp("127.0.0.1", 0)
    sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sender.connect(receiver.socket.getsockname())
    stack.callback(receiver.close)
    return receiver, sender


def unix(stack: ExitStack, path: Path) -> tuple[Receiver, socket.socket]:
    receiver = sockets.unix(path)
    sender = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    sender.connect(str(path))
    stack.callback(receiver.close)
    return receiver, sender


def drops_in_proc(receiver: Receiver) -> int:
    """The last column of the socket's row in /proc/net/udp."""
    inode = str(os.fstat(receiver.socket.fileno()).st_ino)
    table = Path("/proc/net/udp").read_text().splitlines()[1:]
    return next(int(line.split()[-1]) for line in table if line.split()[9] == inode)


def test_kernel_drops_are_counted(intake: Intake, stack: ExitStack) -> None:
    receiver, sender = udp(stack)
    assert receiver.kernel_drops == 0
    receiver.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(100):
        sender.send(b"jobs:1|c")
    receiver.drain(intake)
    drops = receiver.kernel_drops
    assert drops
    assert drops == drops_in_proc(receiver) == 100 - receiver.datagrams
    assert intake.lines == receiver.datagrams


def test_receive_buffer_is_as_large_as_the_system_allows(stack: ExitStack) -> None:
    receiver, sender = udp(stack)
    most = int(Path("/proc/sys/net/core/rmem_max").read_text())
    assert receiver.buffer == 2 * min(most, 8 << 20)  # Linux doubles it, for its own bookkeeping
    assert receiver.buffer >= sender.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


@pytest.mark.parametrize(("limit", "value"), [("_MAX_BATCH_DATAGRAMS", 10), ("_MAX_BATCH_BYTES", 90)])
def test_one_read_is_limited_and_drain_is_not(
    intake: Intake, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(sockets, limit, value)
    receiver, sender = udp(stack)
    for _ in range(40):
        sender.send(b"jobs:1|c\n")
    assert receiver.read(intake)
    assert receiver.datagrams == 10
    receiver.drain(intake)
    assert (receiver.datagrams, intake.lines) == (40, 40)
    assert not receiver.read(intake)


def test_datagram_too_long_is_dropped(intake: Intake, stack: ExitStack, tmp_path: Path) -> None:
    receiver, sender = unix(stack, tmp_path / "statsd")
    sender.send(b"jobs:1|c\n" + b"\n" * (sockets.MAX_DATAGRAM_BYTES - 9))
    sender.send(b"jobs:1|c\n" + b"\n" * (sockets.MAX_DATAGRAM_BYTES - 8))
    receiver.drain(intake)
    assert (intake.lines, intake.dropped[Fault.TOO_LONG]) == (1, 1)


def test_stale_unix_socket_is_replaced_and_a_live_one_is_not(stack: ExitStack, tmp_path: Path) -> None:
    path = tmp_path / "statsd"
    receiver, _ = unix(stack, path)
    with pytest.raises(CannotListen, match=r"cannot listen on unix:.*: Address already in use"):
        sockets.unix(path)
    receiver.socket.close()  # as a process that was killed
    assert path.exists()
    again, sender = unix(stack, path)
    sender.send(b"jobs:1|c")
    assert again.socket.recv(100) == b"jobs:1|c"
    again.close()
    assert not path.exists()


def test_file_that_is_not_a_socket_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("data")
    with pytest.raises(CannotListen, match="File exists"):
        sockets.unix(file)
    assert file.read_text() == "data"
    with pytest.raises(CannotListen, match="No such file or directory"):
        sockets.unix(tmp_path / "nowhere" / "statsd")
    with pytest.raises(CannotListen, match="path too long"):
        sockets.unix(tmp_path / ("x" * 120))


def test_http_connections_whose_peer_does_not_read_are_given_up(stack: ExitStack) -> None:
    listener = stack.enter_context(sockets.http("127.0.0.1", 0))
    timeout_ms = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert timeout_ms == 1000 * UNREAD_TIMEOUT_S


def test_address_in_use_is_refused(stack: ExitStack) -> None:
    receiver, _ = udp(stack)
    port = receiver.socket.getsockname()[1]
    with pytest.raises(CannotListen, match=rf"cannot listen on udp://127\.0\.0\.1:{port}: Address already in use"):
        sockets.udp("127.0.0.1", port)
    with sockets.http("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert sockets.http_where(taken) == f"http://127.0.0.1:{port}"
        with pytest.raises(CannotListen, match=rf"cannot listen on http://127\.0\.0\.1:{port}: "):
            sockets.http("127.0.0.1", port)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "no such host", "x" * 70, ""])  # noqa: S104
def test_address_beyond_loopback_is_refused(host: str) -> None:
    with pytest.raises(InvalidParameter, match="statsd-host = "):
        sockets.udp(host, 0)
    with pytest.raises(InvalidParameter, match="http-host = "):
        sockets.http(host, 0)


def test_address_beyond_loopback_is_allowed_on_request() -> None:
    receiver = sockets.udp("0.0.0.0", 0, allow_remote=True)  # noqa: S104
    assert receiver.where.startswith("udp://0.0.0.0:")
    receiver.close()
    with pytest.raises(CannotListen, match="Cannot assign requested address"):
        sockets.udp("192.0.2.1", 0, allow_remote=True)
