"""Two coordinators with the same answers and different traffic behind them give readers the same responses."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from countless.core.messages import Report
from countless.server.app import build_app
from countless.server.settings import STATE_FILE, Settings
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import new_token
from countless.wire.frames import VERSION, Hello, Join, Leave, Sync, SyncAck, UpItem, decode_down, encode_frames

READS = [
    ("GET", "/api/v1/counters"),
    ("GET", "/api/v1/counters?after=a"),
    ("GET", "/api/v1/counters/hits"),
    ("HEAD", "/api/v1/counters/hits"),
    ("GET", "/api/v1/counters/hits?rolling=1h"),
    ("GET", "/api/v1/counters/hits?window=now"),
    ("GET", "/api/v1/counters/visits?window=now"),
    ("GET", "/api/v1/counters/visits?rolling=1h"),
    ("GET", "/api/v1/windows/visits"),
    ("GET", "/api/v1/counters/nothing"),
    ("GET", "/api/v1/watch/nothing"),
    ("GET", "/api/v1/watch/hits?over=many"),
    ("GET", "/api/v1/operator/hits"),
    ("PATCH", "/api/v1/counters/hits"),
    ("DELETE", "/api/v1/counters/hits"),
    ("POST", "/api/v1/counters"),
    ("GET", "/api/v1/sites"),
    ("DELETE", "/api/v1/sites/web"),
    ("GET", "/metrics"),
    ("GET", "/readyz"),
    ("GET", "/healthz"),
    ("GET", "/livez"),
    ("GET", "/api/v1/openapi.json"),
    ("GET", "/api/v1/elsewhere"),
]
YEARS_LATER = "visits@month:6000"  # a window that is open whatever the clock shows
WEB = "ws://127.0.0.1:2686/api/v1/site"


def seen_by_readers(directory: Path, traffic: Callable[[Callable[..., None]], None]) -> list[tuple[Any, ...]]:
    """Status, headers and body of every request with a read token; the time of reading is masked."""
    store = SqliteStore(directory / STATE_FILE)
    reading, counting = ({"authorization": f"Bearer {new_token(store, scope, scope)}"} for scope in ("read", "site"))
    store.close()
    app = build_app(Settings(state_dir=str(directory), scheme="exact"))
    with TestClient(app, "http://127.0.0.1:2686", headers=reading) as public:
        with public.websocket_connect(WEB, headers=counting) as site:

            def send(*items: UpItem) -> None:
                site.send_bytes(next(encode_frames([*items, Sync(1)])))
                while SyncAck(1) not in decode_down(site.receive_bytes()):
                    pass

            traffic(send)
            answers = [public.request(method, path) for method, path in READS]
        return [
            (
                path,
                answer.status_code,
                dict(answer.headers),
                re.sub(r'"(as_of|time|start|end)":"[^"]*"', "", answer.text),
            )
            for (_, path), answer in zip(READS, answers, strict=True)
        ]


def one_join(send: Callable[..., None]) -> None:
    send(Hello(VERSION, "web", 1), Join("hits", 0, 40), Join("misses", 0, 2), Join(YEARS_LATER, 0, 7))


def many_reports(send: Callable[..., None]) -> None:
    send(Hello(VERSION, "another-name", 7), Join("misses", 0, 0), Join("hits", 0, 0))
    for number in range(1, 41):
        send(Report("hits", 0, number, number))
    for number in range(41, 60):
        send(Report("hits", 0, 40, number))
    send(Report("misses", 0, 1, 1), Report("misses", 0, 2, 2), Leave("misses", 0, 2))
    send(Join(YEARS_LATER, 0, 0), *(Report(YEARS_LATER, 0, number, number) for number in range(1, 8)))


def test_responses_to_readers_do_not_depend_on_who_reports_when_or_how_often(tmp_path: Path) -> None:
    few = seen_by_readers(tmp_path / "few", one_join)
    many = seen_by_readers(tmp_path / "many", many_reports)
    assert few == many
    assert '"estimate":40' in few[2][3]
    for _, status, headers, body in few:
        assert status < 500
        assert set(headers) <= {"cache-control", "content-length", "content-type", "allow", "www-authenticate"}
        assert "web" not in body.replace("webs", "")
