"""One rule for many names: 100 requests a minute for each key, over three replicas, with one command."""

import subprocess
import sys
from collections import Counter as Tally
from collections.abc import Iterator
from threading import Thread

import pytest

import countless
from countless.client.client import Client
from countless.core.budget.decision import Reason
from countless.errors import UnknownBudget
from support.service import TIMEOUT_S, Server, environment

pytestmark = pytest.mark.slow

KEYS = ("a", "b", "long/with/slashes==")


@pytest.fixture
def served(server: Server) -> Iterator[Server]:
    """Without the template after a test."""
    yield server
    server.reader.request("DELETE", "/api/v1/budgets/keys/*")


def create(server: Server, *options: str) -> None:
    command = [sys.executable, "-m", "countless.cli.main", "budget", "create", "keys/*", "--limit", "100", *options]
    subprocess.run(command, check=True, timeout=TIMEOUT_S, env=environment(COUNTLESS_URL=server.url))


def spend_all(client: Client, admitted: Tally[tuple[str, float | None]]) -> None:
    """Take single requests of each key until it is refused, by the end of the minute to which each belongs."""
    for key in KEYS:
        for _ in range(1_000):
            budget = client.budget(f"keys/{key}")
            minute = budget.resets_at
            decision = budget.take(wait=TIMEOUT_S)
            if not decision:
                break
            if minute == budget.resets_at:
                admitted[key, minute] += 1
        assert decision.reason is Reason.EXHAUSTED
        assert decision.retry_after is not None
        assert 0 <= decision.retry_after <= 60


def test_three_replicas_admit_a_hundred_requests_a_minute_for_each_key(served: Server) -> None:
    create(served, "--per", "minute")
    clients = [countless.connect(served.url, site=f"replica-{number}") for number in range(3)]
    admitted: list[Tally[tuple[str, float | None]]] = [Tally() for _ in clients]
    threads = [Thread(target=spend_all, args=each) for each in zip(clients, admitted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * TIMEOUT_S)
    total = sum(admitted, Tally())
    for key in KEYS:
        in_a_minute = [number for (name, minute), number in total.items() if name == key and minute is not None]
        assert max(in_a_minute) <= 100
        assert sum(in_a_minute) >= 90  # all of a hundred but the slack, and first requests before the rule was known
    names = {each["name"] for each in served.reader.budgets()}
    assert names >= {f"keys/{key}" for key in KEYS}
    for client in clients:
        assert client.close(TIMEOUT_S)


def test_name_beyond_the_cap_is_an_error_with_the_reason(served: Server) -> None:
    create(served, "--max-names", "1")
    with countless.connect(served.url, site="web") as client:
        assert client.budget("keys/a").take(wait=TIMEOUT_S)
        with pytest.raises(UnknownBudget, match=r"as many names as it may have \(max_names\)"):
            client.budget("keys/b").take(wait=TIMEOUT_S)
        assert client.budget("keys/a").take(wait=TIMEOUT_S)
