"""One caller cannot use up the connections of sites, or the pages, that all callers share."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from countless.server.app import build_app
from countless.server.http import application
from countless.server.http.page import feed as page_feed
from countless.server.settings import STATE_FILE, Settings
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import new_token
from support.service import until
from support.waiting import eventually

URL = "ws://127.0.0.1:2686/api/v1/site"


def tokens(directory: Path, scope: str, number: int) -> list[str]:
    store = SqliteStore(directory / STATE_FILE)
    made = [new_token(store, scope, f"{scope} {each}") for each in range(number)]
    store.close()
    return made


def test_connections_of_one_site_token_leave_room_for_others(tmp_path: Path) -> None:
    first, second = ({"authorization": f"Bearer {token}"} for token in tokens(tmp_path, "site", 2))
    [operator] = ({"authorization": f"Bearer {token}"} for token in tokens(tmp_path, "operator", 1))
    app = build_app(Settings(state_dir=str(tmp_path), max_connections=5, max_share=0.4))
    with TestClient(app, client=("192.0.2.1", 5000)) as client, ExitStack() as held:
        server = app.state.server
        one = held.enter_context(client.websocket_connect(URL, headers=first))
        held.enter_context(client.websocket_connect(URL, headers=first))
        with client.websocket_connect(URL, headers=first) as third, pytest.raises(WebSocketDisconnect) as refused:
            third.receive_bytes()
        assert (refused.value.code, refused.value.reason) == (
            1013,
            "no more connections of this token (max_share of max_connections)",
        )
        assert server.dropped["too many connections"] == 1
        assert "of one token" in server.refused.recent()[0].reason
        for headers in (second, operator, operator):
            held.enter_context(client.websocket_connect(URL, headers=headers))
        assert len(server.connections) == 5
        with client.websocket_connect(URL, headers=operator) as sixth, pytest.raises(WebSocketDisconnect) as refused:
            sixth.receive_bytes()
        assert refused.value.reason == "no more connections (max_connections)"
        one.close()
        until(lambda: client.get("/livez") and len(server.connections) < 5, "the connection is closed")
        held.enter_context(client.websocket_connect(URL, headers=first))
    assert len(server.connections) == 0


async def test_pages_of_one_token_leave_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (application, page_feed):
        monkeypatch.setattr(module, "MAX_STREAMS", 4)
    first, second, third = tokens(tmp_path, "read", 3)
    app = build_app(Settings(state_dir=str(tmp_path)))
    statuses: list[tuple[str, int]] = []

    async def open_page(token: str) -> None:
        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append((token, message["status"]))

        async def receive() -> Any:
            await asyncio.Event().wait()

        headers = [(b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/page/feed", "query_string": b"", "headers": headers}
        await app({**scope, "client": ("192.0.2.1", 5000), "http_version": "1.1"}, receive, send)

    async with app.router.lifespan_context(app):
        wanted = [first] * 3 + [second] * 2 + [third]
        tasks = [asyncio.create_task(open_page(token)) for token in wanted]  # all arrive in one turn of the loop
        await eventually(lambda: len(statuses) >= len(wanted))
        refused = [token for token, status in statuses if status == 503]
        assert refused == [first, third]
        assert app.state.server.dropped["too many pages"] == 2
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(app.state.pages) == 0
