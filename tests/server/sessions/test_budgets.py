"""Budgets at the site server: who holds what, across lost connections, time-outs and restarts."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from countless.core.budget.messages import Ask, BudgetId, Exhausted, Grant, Recall
from countless.errors import InvalidParameter, ProtocolError
from countless.server.sessions.session_table import Session
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import BudgetLeave, BudgetLeaveAck, BudgetRejected, BudgetReset, Hello, IncarnationRetired
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.stores import PausedStore

TOKENS = BudgetId("tokens")


def ask(seq: int, want: int, *, spent: int = 0, limit: int = 0, round: int = 0) -> Ask:
    return Ask(TOKENS, round, seq, spent, 0, limit, want)


async def connect(harness: SiteServerHarness, site: str, incarnation: int = 1) -> tuple[Session, FakeConnection]:
    """A session whose HelloAck has been received."""
    session, connection = await harness.connect(site, incarnation)
    await harness.server.flush()
    connection.received.clear()
    return session, connection


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_ask_is_answered_by_a_grant_and_a_used_up_budget_by_exhausted() -> None:
    async def scenario() -> None:
        async with site_server() as harness:
            harness.server.budgets.create("tokens", 10, 0.0)
            web = await connect(harness, "web")
            assert await harness.send(*web, ask(1, 10)) == [Grant(TOKENS, 0, 10)]
            other = await connect(harness, "other")
            assert await harness.send(*other, ask(1, 1)) == []  # until the recall is answered
            assert web[1].received[1:] == [Recall(TOKENS, 1)]
            await harness.send(*web, ask(2, 0, spent=10, limit=10, round=1))
            assert other[1].received == [Exhausted(TOKENS, 1, 1)]
            assert harness.server.budgets.get("tokens").usage[:3] == (10, 10, 10)

    run(scenario())


def test_grant_is_sent_after_it_is_saved() -> None:
    async def scenario() -> None:
        store = PausedStore()
        async with site_server(store) as harness:
            harness.server.budgets.create("tokens", 10, 0.0)
            session, connection = await connect(harness, "web")
            store.pause()
            harness.server.on_frame(session, connection, [ask(1, 4)], 10)
            await store.save_waits()
            assert connection.received == []
            store.resume()
            await harness.server.flush()
            assert connection.received == [Grant(TOKENS, 0, 4)]
            assert store.load_budgets()["tokens"].sites[session.site_id].limit == 4

    run(scenario())


def test_after_a_restart_nothing_is_granted_twice() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with site_server(store) as harness:
            harness.server.budgets.create("tokens", 10, 0.0)
            web = await connect(harness, "web")
            await harness.send(*web, ask(1, 10))
        async with site_server(store) as harness:
            other = await connect(harness, "other")
            assert await harness.send(*other, ask(1, 1)) == []  # the first holder has not answered
            web = await connect(harness, "web")
            assert await harness.send(*web, ask(2, 0, spent=9, limit=10)) == [Recall(TOKENS, 1)]
            await harness.send(*web, ask(3, 0, spent=9, limit=9, round=1))
            assert other[1].received == [Grant(TOKENS, 1, 1)]
            assert harness.server.budgets.get("tokens").usage.lower == 9

    run(scenario())


def test_limit_of_a_site_that_timed_out_counts_as_spent() -> None:
    async def scenario() -> None:
        async with site_server(silent_after=10) as harness:
            harness.server.budgets.create("tokens", 10, 0.0)
            session, connection = await connect(harness, "web")
            await harness.send(session, connection, ask(1, 10))
            harness.server.on_disconnect(session, connection)
            other = await connect(harness, "other")
            assert await harness.send(*other, ask(1, 1)) == []
            await harness.advance(11)
            assert other[1].received == [Exhausted(TOKENS, 1, 1)]
            back = await connect(harness, "web")
            assert await harness.send(*back, ask(2, 0, spent=3, limit=10)) == [Recall(TOKENS, 1)]

    run(scenario())


def test_retired_incarnation_is_given_up_and_its_successor_hands_in_what_it_spent() -> None:
    async def scenario() -> None:
        async with site_server(silent_after=10) as harness:
            budget = harness.server.budgets.create("tokens", 10, 0.0)
            session, connection = await connect(harness, "web", 1)
            await harness.send(session, connection, ask(1, 10))
            harness.server.on_disconnect(session, connection)
            await harness.advance(11)
            successor = await connect(harness, "web", 2)
            assert budget.usage.leaked == 10
            late = FakeConnection()
            assert await harness.server.on_hello(late, Hello(1, "web", 1)) is None
            assert late.received == [IncarnationRetired(())]
            for _ in range(2):
                received = await harness.send(*successor, BudgetLeave(TOKENS, 1, 4))
                assert received == [BudgetLeaveAck(TOKENS, 1)]
            assert budget.usage[:4] == (10, 4, 4, 0)

    run(scenario())


def test_site_that_leaves_hands_in_exactly_what_it_spent() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with site_server(store) as harness:
            budget = harness.server.budgets.create("tokens", 10, 0.0)
            session, connection = await connect(harness, "web")
            await harness.send(session, connection, ask(1, 10))
            with pytest.raises(ProtocolError, match="its limit is 10"):
                harness.server.on_frame(session, connection, [BudgetLeave(TOKENS, 1, 11)], 10)
            assert await harness.send(session, connection, BudgetLeave(TOKENS, 1, 4)) == [BudgetLeaveAck(TOKENS, 1)]
            assert budget.usage[:3] == (10, 4, 4)
            assert isinstance((await harness.send(session, connection, ask(2, 1)))[0], BudgetRejected)
            harness.server.on_disconnect(session, connection)
            assert len(harness.server.sessions) == 0
        async with site_server(store) as harness:
            assert harness.server.budgets.get("tokens").usage[:3] == (10, 4, 4)
            assert await harness.server.on_hello(FakeConnection(), Hello(1, "web", 1)) is None

    run(scenario())


def test_incarnation_that_is_connected_is_not_handed_in_by_another() -> None:
    async def scenario() -> None:
        async with site_server() as harness:
            harness.server.budgets.create("tokens", 10, 0.0)
            await harness.send(*await connect(harness, "web", 1), ask(1, 10))
            second, connection = await connect(harness, "web", 2)
            with pytest.raises(ProtocolError, match="is connected"):
                harness.server.on_frame(second, connection, [BudgetLeave(TOKENS, 1, 0)], 10)

    run(scenario())


def test_unknown_and_deleted_budgets_are_rejected_and_a_new_one_starts_from_zero() -> None:
    async def scenario() -> None:
        async with site_server() as harness:
            web = await connect(harness, "web")
            unknown = await harness.send(*web, ask(1, 1))
            assert unknown == [BudgetRejected(TOKENS, "there is no budget 'tokens'")]
            harness.server.budgets.create("tokens", 10, 0.0)
            assert await harness.send(*web, ask(2, 10)) == [Grant(TOKENS, 0, 10)]
            web[1].received.clear()
            harness.server.budgets.delete("tokens")
            await harness.server.flush()
            assert web[1].received == [BudgetRejected(TOKENS, "budget 'tokens' was deleted")]
            budget = harness.server.budgets.create("tokens", 20, 0.0)
            assert await harness.send(*web, ask(3, 1, spent=5, limit=10)) == [BudgetReset(TOKENS)]
            assert await harness.send(*web, BudgetLeave(TOKENS, 7, 5)) == [BudgetLeaveAck(TOKENS, 7)]
            assert budget.usage[:3] == (20, 0, 0)

    run(scenario())


def test_limit_below_what_is_spent_is_refused() -> None:
    async def scenario() -> None:
        async with site_server() as harness:
            budget = harness.server.budgets.create("tokens", 10, 0.0)
            web = await connect(harness, "web")
            await harness.send(*web, ask(1, 8))
            await harness.send(*web, ask(2, 0, spent=8, limit=8))
            with pytest.raises(InvalidParameter, match="limit must be from 8, the units spent already"):
                harness.server.budgets.configure("tokens", 7, 0.5)
            assert (budget.limit, budget.slack) == (10, 0.0)

    run(scenario())
