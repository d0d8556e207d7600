"""Clients that do not finish a TLS handshake, or do not read, against a real coordinator in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from countless import unread
from countless.server import serve
from countless.server.app import build_app
from countless.server.settings import Settings
from support.waiting import eventually, pause

TIMEOUT_S = 0.3  # of the coordinator: what tests wait for


@asynccontextmanager
async def coordinator(settings: Settings) -> AsyncIterator[tuple[serve.Server, socket.socket]]:
    with serve._listener(settings) as listener:
        server = serve.Server(serve.uvicorn_config(build_app(settings), settings, "critical"))
        running = asyncio.create_task(server.serve([listener]))
        await eventually(lambda: server.started)
        try:
            yield server, listener
        finally:
            server.should_exit = True
            await running


async def test_tls_handshake_that_is_not_finished_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "TLS_TIMEOUT_S", TIMEOUT_S)
    machine = trustme.CA().issue_cert("127.0.0.1")
    machine.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    machine.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    settings = Settings(port=0, state_dir=str(tmp_path / "state"), tls_cert=certificate, tls_key=key)
    async with coordinator(settings) as (_, listener):
        for sent in (b"", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(sent)
            assert await reader.read() == b""
            writer.close()


@pytest.mark.parametrize("by_the_system", [False, True])
async def test_response_that_is_not_read_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_the_system: bool
) -> None:
    """A client asks again and again, and reads nothing; the timer of the process, or that of the system, ends it."""
    if by_the_system:
        monkeypatch.setattr(unread.UnreadTimer, "start", lambda self: None)
    else:
        monkeypatch.setattr(serve, "limit_unread", lambda listener: None)
    monkeypatch.setattr(unread, "UNREAD_TIMEOUT_S", TIMEOUT_S)
    settings = Settings(port=0, state_dir=str(tmp_path), open=True)
    async with coordinator(settings) as (server, listener):
        with socket.create_connection(listener.getsockname()) as client:
            client.setblocking(False)
            await eventually(lambda: server.server_state.connections)
            request, sent = b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 500, 0
            while sent < len(request):
                try:
                    sent += client.send(request[sent:])
                except BlockingIOError:  # it is not read either: its responses are not read
                    break
                await asyncio.sleep(0)
            await eventually(lambda: not server.server_state.connections, pause)
