"""Connections of sites and streams end when their token is revoked or expires."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import StreamingResponse
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from countless.server.app import build_app
from countless.server.http.access import auth
from countless.server.http.access.auth import Access, Grant, until_revoked
from countless.server.settings import STATE_FILE, Settings
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import digest, new_token
from countless.wire.frames import VERSION, Hello, Join, decode_down, encode_frames


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_stream_ends_with_its_token_and_cleans_up(how: str) -> None:
    store, closed = SqliteStore(None), asyncio.Event()
    text = new_token(store, "read", "guest")
    now = 1_000.0
    access = Access(store, clock=lambda: now)

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Event().wait()  # nothing more, ever
        finally:
            closed.set()

    response = until_revoked(StreamingResponse(chunks()), access, Grant(frozenset({"read"}), None, digest(text)))
    assert isinstance(response, StreamingResponse)
    stream = aiter(response.body_iterator)
    assert await anext(stream) == b"first"
    waiting = asyncio.ensure_future(anext(stream, None))
    await asyncio.sleep(0)
    access.end_revoked()
    await asyncio.sleep(0)
    assert not waiting.done()
    assert access.take_uses() == {digest(text): 1_000}
    if how == "revoked":
        store.revoke("guest")
    else:
        store.expire(digest(text), 2_000)
        now = 2_000.0
    access.end_revoked()
    assert await waiting is None
    assert closed.is_set()
    assert access.take_uses() == {}
    store.close()


async def test_stream_that_ends_by_itself_is_complete() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    store = SqliteStore(None)
    grant = Grant(frozenset({"read"}), None, digest(new_token(store, "read", "")))
    response = until_revoked(StreamingResponse(chunks()), Access(store), grant)
    assert isinstance(response, StreamingResponse)
    assert [chunk async for chunk in response.body_iterator] == [b"a", b"b"]
    store.close()


def test_site_is_disconnected_when_its_token_is_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "CHECK_S", 0.01)
    store = SqliteStore(tmp_path / STATE_FILE)
    tokens = {label: new_token(store, "site", label) for label in ("web", "app")}
    app = build_app(Settings(state_dir=str(tmp_path)))
    with TestClient(app, base_url="http://127.0.0.1:2686") as client:

        def connect(label: str) -> WebSocketTestSession:
            headers = {"authorization": f"Bearer {tokens[label]}"}
            return client.websocket_connect("/api/v1/site", headers=headers)

        with connect("web") as web, connect("app") as other:
            for number, site in enumerate((web, other)):
                site.send_bytes(next(encode_frames([Hello(VERSION, f"site-{number}", 1), Join("hits", 0, 3)])))
                decode_down(site.receive_bytes())
            assert store.revoke("web") == 1
            with pytest.raises(WebSocketDisconnect) as ended:
                deque(iter(web.receive_bytes, None), maxlen=0)
            assert (ended.value.code, "revoked" in ended.value.reason) == (1008, True)
            with pytest.raises(WebSocketDisconnect), connect("web"):
                pass
            states = {str(session.site_id.site): session.state for session in app.state.server.sessions}
            assert states == {"site-0": "away", "site-1": "connected"}
    listed = {token.label: token.last_used for token in store.tokens()}
    assert listed["app"] is not None  # saved when the coordinator stops
    store.close()
