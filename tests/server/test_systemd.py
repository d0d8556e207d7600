"""What systemd is told, over a real socket: ready, alive, stopping; and a certificate that is renewed by SIGHUP."""

import os
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from countless.server.serve import reload_certificate
from countless.server.settings import Settings
from countless.systemd import notify, watchdog_interval_s
from support.agent import Agent
from support.commands import run_command
from support.service import TIMEOUT_S, Server, until


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(TIMEOUT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listener


def test_notify_sends_one_datagram(systemd: socket.socket) -> None:
    assert notify("READY=1")
    assert systemd.recv(100) == b"READY=1"


def test_notify_reaches_an_abstract_socket() -> None:
    name = f"countless-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        assert notify("STOPPING=1", {"NOTIFY_SOCKET": f"@{name}"})
        assert listener.recv(100) == b"STOPPING=1"


def test_without_systemd_nothing_is_sent(tmp_path: Path) -> None:
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "missing")})


def test_watchdog_of_another_process_or_of_none_is_ignored() -> None:
    half = {"WATCHDOG_USEC": "2000000"}
    assert watchdog_interval_s(half) == watchdog_interval_s(half | {"WATCHDOG_PID": str(os.getpid())}) == 1.0
    for environment in (half | {"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}):
        assert watchdog_interval_s(environment) is None


def new_certificate(directory: Path) -> tuple[str, str]:
    machine = trustme.CA().issue_cert("127.0.0.1")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    machine.cert_chain_pems[0].write_to_path(str(certificate))
    machine.private_key_pem.write_to_path(str(key))
    return str(certificate), str(key)


def test_certificate_that_cannot_be_used_leaves_the_former_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = new_certificate(tmp_path)
    settings = Settings(tls_cert=certificate, tls_key=key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert reload_certificate(context, settings)
    other = trustme.CA().issue_cert("127.0.0.1")
    other.cert_chain_pems[0].write_to_path(certificate)  # without its key
    assert not reload_certificate(context, settings)
    assert "old one stays" in caplog.text
    Path(certificate).unlink()
    assert not reload_certificate(context, settings)
    assert not reload_certificate(None, Settings())


def served_certificate(url: str) -> str:
    return ssl.get_server_certificate(("127.0.0.1", int(url.rpartition(":")[2])), timeout=TIMEOUT_S)


@pytest.mark.slow
def test_coordinator_under_systemd(tmp_path: Path, systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")  # few messages: a full socket would refuse the last
    certificate, key = new_certificate(tmp_path)
    with Server(tmp_path / "state", "--tls-cert", certificate, "--tls-key", key) as server:
        received = {systemd.recv(200) for _ in range(2)}
        assert b"WATCHDOG=1" in received
        assert f"READY=1\nSTATUS=listening on {server.url}".encode() in received
        first = served_certificate(server.url)
        new_certificate(tmp_path)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: served_certificate(server.url) != first, "the new certificate")
        assert served_certificate(server.url) == Path(certificate).read_text()
        # The certificate is for 127.0.0.1 of an authority that this machine does not know.
        healthy = run_command("health", "--url", server.url)
        assert (healthy.returncode, healthy.stdout) == (0, "alive\n")
        port = server.url.rpartition(":")[2]  # a shell does not have the variables of a unit, so TLS is found out
        assert run_command("health", "--ready", COUNTLESS_PORT=port).stdout == "ready\n"
        checked = run_command("doctor", "--state-dir", str(tmp_path / "state"), COUNTLESS_PORT=port)
        assert (checked.returncode, "a coordinator is running there" in checked.stdout) == (0, True), checked.stdout
        assert server.stop() == 0
    until(lambda: systemd.recv(200) == b"STOPPING=1", "the coordinator says that it stops")


@pytest.mark.slow
def test_agent_tells_systemd_when_it_listens(systemd: socket.socket) -> None:
    with Agent("http://127.0.0.1:9") as agent:
        assert systemd.recv(100) == b"READY=1"
        assert agent.request("GET", "/livez")[0] == 200
        agent.stop()
