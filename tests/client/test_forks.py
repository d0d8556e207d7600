"""Clients in forked children, whichever hooks run: nothing is counted twice, nothing lost, and no lock stays held."""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread, get_ident
from threading import enumerate as enumerate_threads
from types import SimpleNamespace

import pytest

from countless.client import fork_page, forks
from countless.client.client import Client
from countless.client.counter import Counter
from countless.client.fork_page import MAX_ITEMS, ForkPage
from countless.client.transport.endpoint import Endpoint
from countless.core.budget.messages import BudgetId, Quota
from countless.core.messages import SetTrigger
from countless.core.triggers import EveryNth
from countless.errors import InvalidParameter
from countless.wire.keys import COUNTER, Key
from support.c_fork import HOOKS, in_fork
from support.local_counters import counts_of, together
from support.service import TIMEOUT_S

Make = Callable[[], Client]


@pytest.fixture(params=["memory", "state_dir"])
def make(
    request: pytest.FixtureRequest, tmp_path: Path, unused_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Makes clients that never connect."""
    monkeypatch.setattr(Client, "_start", lambda self: None)
    clients: list[Client] = []

    def new() -> Client:
        clients.append(
            Client(Endpoint.parse(unused_url), None, "here", tmp_path if request.param != "memory" else None)
        )
        for thread in enumerate_threads():
            if thread.name == "countless-recovery":  # it may have locks of Python's own, as that of the imports
                thread.join(TIMEOUT_S)
        return clients[-1]

    yield new
    for client in clients:
        client.close(0)


def quiet(client: Client, name: str = "hits") -> Counter:
    """A counter whose next report is far away, so that single events take no lock."""
    counter = client.counter(name)
    with client._lock:
        client._local_counters[Key(COUNTER, name)].receive(SetTrigger(name, 0, EveryNth(1 << 40), 0))
    return counter


def add_singly(counter: Counter, number: int) -> None:
    for _ in range(number):
        counter.add()


@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("before", [0, 7, MAX_ITEMS, 3 * MAX_ITEMS + 5])
def test_child_counts_from_zero_and_its_parent_goes_on(make: Make, hooks: str, before: int) -> None:
    client = make()
    hits = quiet(client)
    for _ in range(before):
        hits.add()

    def child() -> list[object]:
        for _ in range(5):
            hits.add()
        hits.add(20)
        hits.add()
        return [hits.count, client._site_id.incarnation]

    count, incarnation = in_fork(hooks, child)
    assert count == 26
    assert incarnation != client._site_id.incarnation
    hits.add()
    assert hits.count == before + 1
    assert counts_of(client) == {"hits": before + 1}


@pytest.mark.parametrize("hooks", ["none", "child"])
def test_lock_that_a_thread_of_the_parent_held_is_free_in_the_child(make: Make, hooks: str) -> None:
    client = make()
    hits, holds, done = quiet(client), Event(), Event()
    hits.add()

    def hold() -> None:
        with client._lock:
            holds.set()
            done.wait(TIMEOUT_S)

    holder = Thread(target=hold)
    holder.start()
    assert holds.wait(TIMEOUT_S)

    def child() -> int:
        together(hits.add, hits.add)
        return hits.count

    try:
        assert in_fork(hooks, child) == 2
    finally:
        done.set()
        holder.join()
    assert hits.count == 1


@pytest.mark.parametrize("hooks", HOOKS)
def test_threads_of_a_child_that_find_out_at_once_lose_no_event(make: Make, hooks: str) -> None:
    clients = [make(), make()]
    counters = [quiet(client) for client in clients for _ in range(2)]
    for counter in counters:
        counter.add()

    def child() -> list[int]:
        together(*[partial(add_singly, counter, 3000) for counter in counters])
        return [counter.count for counter in counters[::2]]

    assert in_fork(hooks, child) == [6000, 6000]
    assert [counter.count for counter in counters] == [2, 2, 2, 2]


@pytest.mark.parametrize("hooks", HOOKS)
def test_grandchild_of_a_child_that_counted_nothing_counts_from_zero(make: Make, hooks: str) -> None:
    client = make()
    hits = quiet(client)
    hits.add()

    def grandchild() -> int:
        hits.add()
        return hits.count

    def child() -> list[int]:
        of_grandchild = in_fork(hooks, grandchild)
        hits.add(2)
        hits.add()
        return [of_grandchild, in_fork(hooks, grandchild), hits.count]

    assert in_fork(hooks, child) == [1, 1, 3]
    assert hits.count == 1


@pytest.mark.parametrize("hooks", HOOKS)
def test_child_counts_windows_and_families_from_zero(make: Make, hooks: str) -> None:
    client = make()
    hours, pages = client.counter("hours", per="hour"), client.counter("pages", family=True)
    hours.add(3)
    pages.labels(page="/a").inc(3)

    def child() -> list[int]:
        hours.add()
        hours.add(2)
        pages.labels(page="/a").inc()
        return [hours.count, pages.labels(page="/a").count]

    assert in_fork(hooks, child) == [3, 1]
    assert [hours.count, pages.labels(page="/a").count] == [3, 3]


@pytest.mark.parametrize("hooks", HOOKS)
def test_units_that_were_set_aside_before_the_fork_are_not_spent_by_the_child(make: Make, hooks: str) -> None:
    client = make()
    budget, part = client.budget("tokens"), client._budget_part("tokens")
    with client._lock:
        part.receive(Quota(BudgetId("tokens"), since=1, number=1, granted=100, keep=True))
    assert budget.take()
    assert budget.remaining == 99

    def child() -> list[object]:
        taken = [bool(budget.take(wait=0)) for _ in range(3)]
        return [taken, bool(budget.take(5, wait=0)), budget.remaining]

    assert in_fork(hooks, child) == [[False, False, False], False, 0]
    assert all(budget.take() for _ in range(99))
    assert not budget.take(wait=0)
    with client._lock:
        assert client._budget_part("tokens").hand_ins() == []


@pytest.mark.parametrize("hooks", HOOKS)
def test_hold_of_the_parent_is_settled_by_the_parent_alone(make: Make, hooks: str) -> None:
    client = make()
    budget, part = client.budget("tokens"), client._budget_part("tokens")
    with client._lock:
        part.receive(Quota(BudgetId("tokens"), since=1, number=1, granted=100, keep=True))
    hold = budget.reserve(60)

    def child() -> int:
        hold.settle(10)
        return budget.remaining

    assert in_fork(hooks, child) == 0
    assert budget.remaining == 40
    hold.settle(10)
    assert budget.remaining == 90


@pytest.mark.parametrize("hooks", HOOKS)
def test_child_of_a_closed_client_counts_nothing(make: Make, hooks: str) -> None:
    client = make()
    hits = quiet(client)
    hits.add()
    client.close(0)

    def child() -> bool:
        with pytest.raises(InvalidParameter, match="has not been closed"):
            hits.add()
        return client.close(0)

    assert in_fork(hooks, child) in (True, False)


def test_fork_that_no_hook_and_no_page_show_is_noticed_by_the_pid(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_page, "_wiped_at_fork", lambda: None)
    monkeypatch.setattr(forks, "_page", ForkPage())
    client = make()
    hits = client.counter("hits")
    hits.add(9)

    def child() -> int:
        hits.add(2)
        hits.add(3)
        return hits.count

    assert in_fork("none", child) == 5
    assert hits.count == 9


@pytest.mark.parametrize("has_threads", [0, 1])
def test_uwsgi_without_threads_is_named_in_the_log(
    unused_url: str, has_threads: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(has_threads=has_threads, masterpid=lambda: 0))
    client = Client(Endpoint.parse(unused_url), None, "here")
    client.counter("hits").add(3)
    client.counter("hits").add(3)
    client.close(0)
    warnings = [record for record in caplog.records if "set enable-threads" in record.message]
    assert len(warnings) == 1 - has_threads


def test_uwsgi_master_has_no_thread_before_a_call_waits(
    unused_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker would wait for a thread that had the GIL at the fork."""
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(has_threads=1, masterpid=os.getpid))
    before = set(enumerate_threads())
    client = Client(Endpoint.parse(unused_url), None, "here", tmp_path)
    for _ in range(3):
        client.counter("hits").add()
        client.counter("pages", family=True).labels(page="/a").inc()
    assert set(enumerate_threads()) <= before
    here = [
        record.message for record in caplog.records if record.thread == get_ident()
    ]  # other tests' clients log, too
    assert len(here) == 1
    assert "call flush" in here[0]
    assert not client.flush(0)
    assert {thread.name for thread in set(enumerate_threads()) - before} == {"countless"}
    client.close(0)


def test_request_that_waits_in_the_uwsgi_master_starts_the_thread(
    unused_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(has_threads=1, masterpid=os.getpid))
    started: list[Client] = []
    monkeypatch.setattr(Client, "_start", lambda self: started.append(self))
    client = Client(Endpoint.parse(unused_url), None, "here")
    client.counter("hits").add()
    assert not started
    assert not client.budget("tokens").take(wait=0.01)
    assert started == [client]
    client.close(0)
