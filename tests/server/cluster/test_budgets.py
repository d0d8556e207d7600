"""Budgets of coordinators behind a real broker, spent by real clients while coordinators are killed and paused."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

import countless
from countless.client.client import Client
from countless.core.budget.decision import Reason
from countless.errors import ServiceError, UnknownBudget
from countless.wire.keys import BUDGET, Key
from countless.wire.nats_subjects import shard_of
from support.nats import Coordinator, Node, require_fenced
from support.service import TIMEOUT_S, until

pytestmark = pytest.mark.slow

SHARDS = 4
NAMES = ["acme/tokens", "b0", "b1", "b2", "b5"]  # in all shards
LONG_S = 3 * TIMEOUT_S

Pair = tuple[Coordinator, Coordinator]


@pytest.fixture(scope="module")
def pair(broker: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("coordinators")
    with Coordinator(directory / "one", broker.url) as one, Coordinator(directory / "two", broker.url) as two:
        yield one, two


@pytest.fixture
def names(pair: Pair) -> Iterator[list[str]]:
    """Names of budgets that do not exist before and after a test."""
    yield NAMES

    def delete_all() -> bool:
        listed = pair[0].reader.request("GET", "/api/v1/budgets")["budgets"]
        for each in listed:
            pair[0].reader.request("DELETE", f"/api/v1/budgets/{each['name']}")
        return not listed

    until(delete_all, "no budget")


def create(server: Coordinator, name: str, limit: int) -> None:
    """Shards may be without an owner for a moment, while they move to another coordinator."""

    def created() -> Any:
        with suppress(ServiceError):
            server.reader.request("POST", "/api/v1/budgets", {"name": name, "limit": limit, "slack": 0.0})
        return server.reader.request("GET", f"/api/v1/budgets/{name}")

    until(created, "a budget")


def status(server: Coordinator, name: str) -> dict[str, Any]:
    """Waits while the budget has no owner."""
    found: dict[str, Any] = until(lambda: server.reader.request("GET", f"/api/v1/budgets/{name}"), "an owner")
    return found


def used(server: Coordinator, name: str) -> tuple[int, int, int]:
    found = status(server, name)
    return found["used_lower"], found["used_upper"], found["leaked"]


def test_each_coordinator_answers_for_every_budget(broker: Node, pair: Pair, names: list[str]) -> None:
    assert {shard_of(Key(BUDGET, name), SHARDS) for name in names} == set(range(SHARDS))
    for number, name in enumerate(names):
        create(pair[number % 2], name, 10 + number)
    with countless.connect(broker.url, site="web 1") as a, countless.connect(broker.url, site="web 2") as b:
        for name in names:
            assert a.budget(name).take(4, wait=TIMEOUT_S)
            assert b.budget(name).take(6, wait=TIMEOUT_S)
        assert b.budget(names[0]).take(1, wait=TIMEOUT_S).reason is Reason.EXHAUSTED
        with pytest.raises(UnknownBudget):
            b.budget("unknown").take(1, wait=TIMEOUT_S)
    for server in pair:
        listed = until(lambda: server.reader.request("GET", "/api/v1/budgets")["budgets"], "owners")  # noqa: B023
        assert [(each["name"], each["limit"]) for each in listed] == [(name, 10 + i) for i, name in enumerate(names)]
        assert all(used(server, name) == (10, 10, 0) for name in names)
    limits = [line for server in pair for line in server.metrics().splitlines() if "countless_budget_limit{" in line]
    assert sorted(limits) == [f'countless_budget_limit{{budget="{name}"}} {10.0 + i}' for i, name in enumerate(names)]


def test_names_of_a_template_are_limited_in_its_shard(broker: Node, pair: Pair, names: list[str]) -> None:
    create(pair[0], "keys/*", 10)
    clients = [countless.connect(broker.url, site=f"web {number}") for number in range(2)]
    for name in ("keys/a", "keys/b/c"):
        assert [client.budget(name).take(5, wait=TIMEOUT_S).reason for client in clients] == [Reason.ALLOWED] * 2
        assert clients[0].budget(name).take(1, wait=TIMEOUT_S).reason is Reason.EXHAUSTED
        assert status(pair[1], name)["template"] == "keys/*"
    assert status(pair[1], "keys/*")["names"] == 2
    for client in clients:
        assert client.close(TIMEOUT_S)
    pair[1].reader.request("DELETE", "/api/v1/budgets/keys/*")
    until(lambda: pair[0].reader.request("GET", "/api/v1/budgets")["budgets"] == [], "no budget")


class Spender:
    """A client that takes single units of some budgets, in turn, in a thread of its own."""

    def __init__(self, url: str, site: str, names: list[str]) -> None:
        self.spent = dict.fromkeys(names, 0)
        self.refusals: set[Reason] = set()
        self.client: Client = countless.connect(url, site=site)
        self.spend_up_to(0)

    def spend_up_to(self, number: int) -> None:
        """So many units of each budget in all, or until it is exhausted."""
        self._thread = Thread(target=self._spend, args=(number,), daemon=True)
        self._thread.start()

    def _spend(self, number: int) -> None:
        left = list(self.spent)
        while left:
            for name in list(left):
                reason = Reason.EXHAUSTED
                if self.spent[name] < number:
                    reason = self.client.budget(name).take(1, wait=LONG_S).reason
                if reason is Reason.ALLOWED:
                    self.spent[name] += 1
                else:
                    self.refusals.add(reason)
                    left.remove(name)

    def wait(self) -> None:
        self._thread.join(2 * LONG_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.wait()
        assert self.refusals == {Reason.EXHAUSTED}
        assert self.client.close(LONG_S), self.client.last_error


def test_limits_are_spent_exactly_when_coordinators_are_killed_paused_and_added(
    broker: Node, pair: Pair, names: list[str]
) -> None:
    """Sites hold grants at every take-over. Nothing is lost at the sites, so with slack 0 nothing is left over."""
    one, two = pair
    limit = 900
    for name in names:
        create(one, name, limit)
    spenders = [Spender(broker.url, f"site {number}", names) for number in range(3)]

    def spend_up_to(number: int) -> None:
        for each in spenders:
            each.wait()
            each.spend_up_to(number)

    spend_up_to(1)
    spend_up_to(100)
    one.kill()  # while they spend, or hold what is left of their grants
    spend_up_to(190)
    one.start()
    two.process.send_signal(signal.SIGSTOP)
    spend_up_to(270)  # so much was not granted yet
    for each in spenders:
        each.wait()
    two.process.send_signal(signal.SIGCONT)
    spend_up_to(limit)
    for each in spenders:
        each.close()
    for name in names:
        assert sum(each.spent[name] for each in spenders) == limit
        assert used(one, name) == used(two, name) == (limit, limit, 0)
    require_fenced(broker.url, SHARDS)


def test_granted_units_are_spent_while_no_coordinator_is_there(broker: Node, pair: Pair, names: list[str]) -> None:
    create(pair[0], "alone", 1000)
    with countless.connect(broker.url, site="a") as client:
        budget = client.budget("alone")
        assert budget.take(100, wait=TIMEOUT_S)
        room = until(lambda: budget.remaining, "a share")
        for server in pair:
            server.kill()
        assert all(budget.take(1, wait=0) for _ in range(room))
        for server in pair:
            server.start()
        assert budget.take(1, wait=LONG_S)
    assert used(pair[0], "alone") == (101 + room, 101 + room, 0)
