"""Sites that may not connect: an operator's page gets their addresses and the reasons."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from countless.server.app import build_app
from countless.server.connection import FORGET_AFTER_S, MAX_ADDRESSES, RefusedSites
from countless.server.settings import STATE_FILE, Settings
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import new_token
from countless.wire.frames import VERSION, Hello, encode_frames

URL = "ws://127.0.0.1:2686/api/v1/site"


def test_refused_sites_are_listed_with_the_reason(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / STATE_FILE)
    reader, one_site = new_token(store, "read", "me"), new_token(store, "site", "web", "web")
    store.close()
    app = build_app(Settings(state_dir=str(tmp_path)))
    with TestClient(app, base_url="http://127.0.0.1:2686", client=("192.0.2.1", 5000)) as client:

        def connect(headers: dict[str, str]) -> None:
            with client.websocket_connect(URL, headers=headers) as site:
                site.send_bytes(next(encode_frames([Hello(VERSION, "other", 1)])))
                site.receive_bytes()

        def reason(**headers: str) -> str:
            with pytest.raises(WebSocketDisconnect):
                connect(headers)
            return str(app.state.server.refused.recent()[0].reason)

        assert reason() == "no token"
        assert reason(authorization="Bearer nonsense") == "a token that is not known here"
        assert reason(authorization=f"Bearer {reader}") == "a token of scope read, which does not allow this"
        assert reason(authorization=f"Bearer {one_site}") == "its token is for site web"
        by_address = {each.address: each.attempts for each in app.state.server.refused.recent()}
        assert by_address == {"192.0.2.1": 4}  # never the name of a site, which the caller chooses


def test_old_refusals_and_those_of_too_many_addresses_are_forgotten() -> None:
    now = 0.0
    refused = RefusedSites(clock=lambda: now)
    for number in range(MAX_ADDRESSES + 1):
        refused.add(f"a{number}", "no token")
    assert len(refused.recent()) == MAX_ADDRESSES
    assert refused.recent()[-1].address == "a1"
    now = FORGET_AFTER_S / 2
    refused.add("a1", "no token")
    now = FORGET_AFTER_S + 1
    assert [each.address for each in refused.recent()] == ["a1"]


def test_refusals_of_a_clock_that_was_ahead_are_not_shown_for_years() -> None:
    now = 800 * 86_400.0
    refused = RefusedSites(lambda: now)
    refused.add("192.0.2.1", "no token")
    now = 0.0
    assert refused.recent() == []
