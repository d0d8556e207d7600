"""Windows of counters behind a real broker, while the coordinator that owns them is killed over an edge."""

from pathlib import Path
from time import time
from typing import Any

import pytest

import countless
from countless.core.calendar import Calendar
from support.nats import Coordinator, Node, require_fenced
from support.service import TIMEOUT_S, until

pytestmark = pytest.mark.slow

SHARDS = 4
NAMES = ["requests", "errors", "jobs", "logins"]
SECONDS_TO_EDGE = 5


def complete(server: Coordinator, name: str) -> list[tuple[str, float, str]] | None:
    """Start, count and state of the windows, once the oldest is complete. None while the counter has no owner."""
    answer: dict[str, Any] | None = server.reader.request("GET", f"/api/v1/windows/{name}")
    windows = (answer or {}).get("windows", [])
    oldest = min(windows, key=lambda window: window["start"], default=None)
    if oldest is None or not oldest["complete"]:
        return None
    return sorted((window["start"], window["estimate"], window["state"]) for window in windows)


def test_windows_are_exact_although_their_owner_is_killed_over_the_edge(broker: Node, tmp_path: Path) -> None:
    """Each site counts before the edge, and after it. The windows have exactly what the clock showed."""
    with Coordinator(tmp_path / "one", broker.url) as one, Coordinator(tmp_path / "two", broker.url) as two:
        now = int(time())
        edge = now + SECONDS_TO_EDGE
        minutes = Calendar("minute", "UTC", edge % 60)
        clients = [countless.connect(broker.url, site=f"web {number}") for number in range(3)]
        counters = [client.counter(name, per="minute", anchor=edge % 60) for client in clients for name in NAMES]
        for counter in counters:
            counter.add(10)
        assert minutes.period_at(time()) == minutes.period_at(now)  # otherwise the machine was too slow for this test
        assert all(client.flush(TIMEOUT_S) for client in clients)
        one.kill()
        until(lambda: time() > edge, "the edge")
        for counter in counters:
            counter.add(7)
        one.start()
        assert all(client.close(3 * TIMEOUT_S) for client in clients)
        first, second = (minutes.bounds(minutes.period_at(moment))[0] for moment in (now, edge))
        for name in NAMES:
            for server in (one, two):
                windows = until(lambda: complete(server, name), f"the windows of {name}")  # noqa: B023
                starts = [minutes.moment(start) for start, _, _ in windows]
                assert starts == [first, second]
                assert [count for _, count, _ in windows] == [30, 21]
                assert windows[0][2] == "exact"
    require_fenced(broker.url, SHARDS)
