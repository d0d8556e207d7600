"""Windows of counters behind a real broker, while the coordinator that owns them is killed over an edge."""

from collections import Counter as Tally
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
        least, most = Tally[tuple[str, int]](), Tally[tuple[str, int]]()  # in truth, by counter and minute

        def count(n: int) -> None:
            for number, counter in enumerate(counters):
                before = minutes.period_at(time())
                counter.add(n)
                after = minutes.period_at(time())
                name = NAMES[number % len(NAMES)]
                least[name, before] += n if before == after else 0
                for period in {before, after}:
                    most[name, period] += n

        count(10)
        assert all(client.flush(TIMEOUT_S) for client in clients)
        one.kill()
        until(lambda: time() > edge, "the edge")
        count(7)
        one.start()
        assert all(client.close(3 * TIMEOUT_S) for client in clients)
        for name in NAMES:
            for server in (one, two):
                windows = until(lambda: complete(server, name), f"the windows of {name}")  # noqa: B023
                for start, counted, _ in windows:
                    period = minutes.period_at(minutes.moment(start))
                    assert least[name, period] <= counted <= most[name, period]
                assert sum(counted for _, counted, _ in windows) == 3 * (10 + 7)
                assert windows[0][2] == "exact"
    require_fenced(broker.url, SHARDS)
