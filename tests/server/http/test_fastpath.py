"""The fast path gives the same answers as uvicorn's own protocol."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from countless.client.transport.base import ConnectionLost
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.core.messages import Report
from countless.server import serve
from countless.server.app import build_app
from countless.server.http.sockets.fast_websocket import CONNECTION_BYTES, FastWebSocketProtocol
from countless.server.serve import Server, uvicorn_config
from countless.server.settings import Settings
from countless.wire.frames import (
    MAX_FRAME_BYTES,
    VERSION,
    DownItem,
    Hello,
    Join,
    Leave,
    Sync,
    SyncAck,
    UpItem,
    encode_frames,
)
from support.raw_connection import close_reason, receive_until
from support.service import until


@contextmanager
def running(directory: Path) -> Iterator[tuple[Server, str]]:
    """A coordinator in a thread of this process."""
    settings = Settings(state_dir=str(directory), port=0, open=True, max_messages_per_second=1000, scheme="exact")
    config = uvicorn_config(build_app(settings), settings, "critical")
    config.port = 0
    server = Server(config)
    thread = Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the server")
        yield server, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def send(link: WebSocketConnection, *items: UpItem) -> None:
    for frame in encode_frames(list(items)):
        link.send(frame)


def transcript(url: str) -> list[list[DownItem] | str]:
    """What a coordinator sends to sites that do everything a site can do, right and wrong."""
    place = Endpoint.parse(url)
    link = WebSocketConnection(place, None)
    send(link, Hello(VERSION, "web", 1), Join("hits", 0, 0))
    for number in range(1, 51):  # a frame for each, as a busy site sends them
        send(link, Report("hits", 0, number, number))
    send(link, Sync(1))
    received: list[list[DownItem] | str] = [receive_until(link, SyncAck(1))]
    many: list[UpItem] = [Join(f"counter-{number:0100}", 0, number) for number in range(300)]
    assert len(next(encode_frames(many))) > CONNECTION_BYTES  # the ordinary path, between two fast frames
    send(link, *many)
    send(link, Sync(2))
    received.append(receive_until(link, SyncAck(2)))
    send(link, *(Report("hits", 0, 50 + number, 50 + number) for number in range(1, 5001)))  # more than the rate
    send(link, Leave("hits", 0, 5050), Sync(3))
    received.append(receive_until(link, SyncAck(3)))
    send(link, Report("never joined", 0, 1, 1))
    received.append(close_reason(link))
    for frame in (b"\xc1", b"\x91" + b"\x00" * MAX_FRAME_BYTES):
        link = WebSocketConnection(place, None)
        send(link, Hello(VERSION, "other", 1), Sync(1))
        received.append(receive_until(link, SyncAck(1)))
        try:
            link.send(frame)
            assert close_reason(link) != "not closed"
        except ConnectionLost:  # while the frame was being sent
            link.abandon()
    return received


@pytest.mark.slow
def test_protocol_of_uvicorn_sends_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path / "fast") as (server, url):
        assert server.config.ws_protocol_class is FastWebSocketProtocol
        fast = transcript(url)
        totals = server.config.loaded_app.state.server.counters["hits"].published_answer.estimate
    monkeypatch.setattr(serve, "FastWebSocketProtocol", WebSocketsSansIOProtocol)
    with running(tmp_path / "ordinary") as (server, url):
        assert server.config.ws_protocol_class is WebSocketsSansIOProtocol
        assert transcript(url) == fast
        assert server.config.loaded_app.state.server.counters["hits"].published_answer.estimate == totals == 5050
    assert "has not joined" in str(fast[3])
