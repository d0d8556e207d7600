"""Every kind behind a real broker, while the coordinator that owns it is killed and another one takes over."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import countless
from countless.client.client import Client
from countless.core.calendar import Per
from countless.errors import ServiceError
from countless.server.kinds.budgets import Budgets
from countless.server.kinds.counters import Counters
from countless.server.kinds.families import Families
from countless.server.site_server import KINDS
from countless.wire.keys import BUDGET, COUNTER, FAMILY, Key
from countless.wire.nats_subjects import shard_of
from support.nats import Coordinator, Node, require_fenced
from support.service import TIMEOUT_S, until

pytestmark = pytest.mark.slow

SHARDS = 4
CLIENTS = 2
TIMES = 60  # that each client uses each name, before the take-over and after it
USES = 2 * CLIENTS * TIMES  # of each name


class Counting:
    kind: Callable[..., Any] = Counters
    key = COUNTER

    def create(self, server: Coordinator, name: str, per: Per | None) -> None:
        """By an operator, if it is not created by its first use."""

    def use(self, client: Client, name: str, number: int, per: Per | None) -> None:
        client.counter(name, per=per).inc()

    def found(self, server: Coordinator, name: str) -> Any:
        """The number of uses, or False while it is not exact."""
        return server.known(name)


class Labelling(Counting):
    kind = Families
    key = FAMILY

    def use(self, client: Client, name: str, number: int, per: Per | None) -> None:
        client.counter(name, family=True, epsilon=0.1, per=per).labels(user=number % 11).inc()

    def found(self, server: Coordinator, name: str) -> Any:
        top = countless.Reader(server.url).top(name, 0.01)
        if top.state != "exact":
            return False
        by_user = {f'{name}{{user="{user}"}}': 2 * CLIENTS * len(range(user, TIMES, 11)) for user in range(11)}
        assert {each.counter: each.lower for each in top.series} == by_user
        assert top.lower == top.upper
        return top.lower


class Observing(Counting):
    kind = Families
    key = FAMILY

    def use(self, client: Client, name: str, number: int, per: Per | None) -> None:
        client.distribution(name, epsilon=0.1, per=per).observe(number)

    def found(self, server: Coordinator, name: str) -> Any:
        quantile = countless.Reader(server.url).quantile(name, 1.0)
        return quantile.state == "exact" and quantile.lower


class Spending(Counting):
    kind = Budgets
    key = BUDGET

    def create(self, server: Coordinator, name: str, per: Per | None) -> None:
        def created() -> Any:
            with suppress(ServiceError):  # its shard may have no owner for a moment
                server.reader.request(
                    "POST", "/api/v1/budgets", {"name": name, "limit": USES, "slack": 0.0, "per": per}
                )
            return server.reader.request("GET", f"/api/v1/budgets/{name}")

        until(created, "a budget")

    def use(self, client: Client, name: str, number: int, per: Per | None) -> None:
        assert client.budget(name).take(1, wait=3 * TIMEOUT_S)

    def found(self, server: Coordinator, name: str) -> Any:
        budget = server.reader.request("GET", f"/api/v1/budgets/{name}")
        return budget and budget["used_lower"] == budget["used_upper"] and budget["used_lower"]


ALL = [Counting(), Labelling(), Observing(), Spending()]


def name_in(shard: int, kind: str, prefix: str) -> str:
    names = (f"{prefix}-{number}" for number in count())
    return next(name for name in names if shard_of(Key(kind, name), SHARDS) == shard)


def test_every_kind_is_here() -> None:
    assert {each.kind for each in ALL} == set(KINDS)


@pytest.mark.parametrize("per", [None, pytest.param("day", marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ALL, ids=lambda kind: type(kind).__name__)
def test_uses_are_exact_after_a_take_over(kind: Counting, broker: Node, tmp_path: Path, per: Per | None) -> None:
    """Sites use it before, during and after the take-over; then they leave."""
    names = [name_in(shard, kind.key, f"{type(kind).__name__}-{per}") for shard in range(SHARDS)]
    with Coordinator(tmp_path / "one", broker.url) as one, Coordinator(tmp_path / "two", broker.url) as two:
        for name in names:
            kind.create(two, name, per)
        clients = [countless.connect(broker.url, site=f"web {number}") for number in range(CLIENTS)]

        def use_all() -> None:
            for client in clients:
                for name in names:
                    for number in range(TIMES):
                        kind.use(client, name, number, per)

        use_all()
        assert all(client.flush(TIMEOUT_S) for client in clients)
        one.kill()
        use_all()
        one.start()
        assert all(client.close(3 * TIMEOUT_S) for client in clients)
        for server in (one, two):
            for name in names:
                found = until(lambda: kind.found(server, name), f"an owner of {name}")  # noqa: B023
                assert found == USES
    require_fenced(broker.url, SHARDS)
