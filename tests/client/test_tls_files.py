"""Files for TLS that cannot be read are named, and certificates that are not accepted: by command and client."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
import trustme

from countless.client.transport.base import ConnectionLost
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from support.commands import run_command

URL = "https://127.0.0.1:9"


@pytest.mark.parametrize("variable", ["COUNTLESS_CA", "COUNTLESS_CERT"])
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_file_that_cannot_be_read_is_named(
    variable: str, content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_text(content)
    told = f"{variable} = '{file}' is not a readable PEM file"
    result = run_command("get", "x", "--url", URL, **{variable: str(file)})
    assert (result.returncode, result.stderr.startswith(f"countless: {told}")) == (2, True), result.stderr
    monkeypatch.setenv(variable, str(file))
    with pytest.raises(ConnectionLost, match=variable):
        WebSocketConnection(Endpoint.parse(URL), None)


@contextmanager
def listening(tls: ssl.SSLContext | None) -> Iterator[int]:
    """A port on which two connections are taken and closed, after the handshake if there is one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with suppress(OSError), connection:
                    (tls.wrap_socket(connection, server_side=True) if tls else connection).recv(1)
                    connection.send(b"?" * 100)

        thread = Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        ("signed by another", "name the authority that signed it in COUNTLESS_CA"),
        ("expired", "renew it on the coordinator's machine"),
        ("for another address", "use an address that it is for"),
        ("no TLS there", "does its address begin with http://?"),
    ],
)
def test_certificate_that_is_not_accepted_has_its_remedy(
    problem: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, other = trustme.CA(), trustme.CA()
    made = authority.issue_cert(
        "192.0.2.1" if problem == "for another address" else "127.0.0.1",
        not_after=datetime.now(UTC) - timedelta(days=1) if problem == "expired" else None,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.configure_cert(tls)
    (other if problem == "signed by another" else authority).cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("COUNTLESS_CA", str(tmp_path / "ca.pem"))
    with listening(None if problem == "no TLS there" else tls) as port:
        with pytest.raises(ConnectionLost) as lost:
            WebSocketConnection(Endpoint.parse(f"https://127.0.0.1:{port}"), None)
        result = run_command("doctor", "--url", f"https://127.0.0.1:{port}")
    assert remedy in str(lost.value)
    assert remedy in result.stdout
    assert ("start one with" in result.stdout) == (problem == "no TLS there")
