"""Families behind a real broker, while the coordinator that owns them is killed and another one takes over."""

from collections import Counter
from pathlib import Path

import pytest

import countless
from countless.core.calendar import Per
from support.nats import Coordinator, Node, require_fenced
from support.service import TIMEOUT_S, until

pytestmark = pytest.mark.slow

SHARDS = 4
NAMES = ["requests", "errors", "jobs", "logins"]


@pytest.mark.parametrize("per", [None, pytest.param("day", marks=pytest.mark.soak)])
def test_families_are_exact_after_take_overs(broker: Node, tmp_path: Path, per: Per | None) -> None:
    """Sites count before, during and after the take-over; then they leave."""
    with Coordinator(tmp_path / "one", broker.url) as one, Coordinator(tmp_path / "two", broker.url) as two:
        clients = [countless.connect(broker.url, site=f"web {number}") for number in range(2)]
        exact: Counter[str] = Counter()

        def count() -> None:
            for client in clients:
                for name in NAMES:
                    for number in range(60):
                        client.counter(name, family=True, epsilon=0.1, per=per).labels(user=number % 11).inc()
                        exact[f'{name}{{user="{number % 11}"}}'] += 1
                client.distribution("ms", per=per).observe(5, 40)

        count()
        assert all(client.flush(TIMEOUT_S) for client in clients)
        one.kill()
        count()
        one.start()
        count()
        assert all(client.close(3 * TIMEOUT_S) for client in clients)
        for server in (one, two):
            reader = countless.Reader(server.url)
            for name in NAMES:
                top = until(lambda: (seen := reader.top(name, 0.01)).state == "exact" and seen, name)  # noqa: B023
                assert {each.counter: each.lower for each in top.series} == {
                    series: n for series, n in exact.items() if series.startswith(name)
                }
                assert top.lower == top.upper == 360
            quantile = until(lambda: (seen := reader.quantile("ms", 0.5)).state == "exact" and seen, "ms")  # noqa: B023
            assert quantile.lower == 240
    require_fenced(broker.url, SHARDS)
