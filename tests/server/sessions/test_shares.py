"""One token cannot use up what all share, and what it gives back it may use again."""

from typing import Any

import pytest

from countless.core.budget.rule import BudgetRule
from countless.errors import ProtocolError
from countless.server.sessions.session_table import Session
from countless.server.storage.memory_store import MemoryStore
from countless.wire.families import FamilyJoin, FamilyRejected
from countless.wire.frames import VERSION, CounterRejected, Hello, Join, Leave
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.spender import first_ask


async def connect(harness: SiteServerHarness, site: str, peer: str) -> tuple[Session, FakeConnection]:
    connection = FakeConnection()
    session = await harness.server.on_hello(connection, Hello(VERSION, site, 1), peer)
    assert session is not None
    return session, connection


def family(name: str) -> FamilyJoin:
    return FamilyJoin(name, "labels", 0.1, 0.0, 0, 1, 1, 0, 0)


async def test_sites_of_one_token_leave_room_for_others() -> None:
    async with site_server(max_sites=4, max_share=0.5, forget_after=60.0) as harness:
        held = [await connect(harness, site, "token 1") for site in ("a", "b")]
        for session, connection in held:
            await harness.send(session, connection, Join("hits", 0, 1))
        with pytest.raises(ProtocolError, match="2 sites already"):
            await connect(harness, "c", "token 1")
        await connect(harness, "a", "token 1")  # it is known
        await connect(harness, "c", "token 2")
        other, connection = await connect(harness, "e", "token 2")
        await harness.send(other, connection, Join("hits", 0, 1))
        with pytest.raises(ProtocolError, match="no room for what the site has used with another"):
            await connect(harness, "e", "token 1")
        assert other.connection is connection
        harness.server.on_disconnect(other, connection)
        harness.server.drop_site("e")
        harness.server.on_disconnect(*held[1])
        await harness.advance(11)
        await harness.advance(61)  # b is retired
        await connect(harness, "d", "token 1")


async def test_counters_of_one_token_leave_room_for_others() -> None:
    async with site_server(max_counters=4, max_share=0.5) as harness:
        first, second = await connect(harness, "a", "token 1"), await connect(harness, "b", "token 1")
        other, operator = await connect(harness, "c", "token 2"), await connect(harness, "d", "")

        async def refused(site: tuple[Session, FakeConnection], *items: Any) -> list[str]:
            received = await harness.send(*site, *items)
            return [item.reason for item in received if isinstance(item, CounterRejected | FamilyRejected)]

        assert await refused(first, Join("one", 0, 1)) == []
        assert await refused(second, Join("two@hour:490000", 0, 1)) == []  # another process of the same token
        (reason,) = await refused(first, Join("three", 0, 1))
        assert "one of at most 2 of one token (max_share of max_counters)" in reason
        assert await refused(first, Join("two@hour:490000", 0, 1)) == []  # it exists
        assert await refused(other, Join("three", 0, 1)) == []
        harness.server.delete("one")
        assert await refused(second, Join("four", 0, 1)) == []
        harness.server.delete("three")
        for name in ("five", "six"):
            assert await refused(operator, Join(name, 0, 1)) == [] or name == "six"
        assert await refused(first, family("f1"), family("f2")) == []
        assert len(await refused(second, family("f3"))) == 1
        harness.server.delete("f1")
        assert await refused(second, family("f3")) == []


async def test_windows_of_one_token_leave_room_for_others() -> None:
    hour = 490_000
    async with site_server(max_counters=1, max_share=0.5, wall_clock=lambda: hour * 3600.0) as harness:
        first, other = await connect(harness, "a", "token 1"), await connect(harness, "b", "token 2")
        joins = [Join(f"hits@hour:{hour - age}", 0, 1) for age in (2, 1, 0)]
        received = await harness.send(*first, *joins)
        assert [item.counter for item in received if isinstance(item, CounterRejected)] == [joins[2].counter]
        assert not any(isinstance(item, CounterRejected) for item in await harness.send(*other, joins[2]))
        await harness.send(*first, *(Leave(each.counter, 0, 1) for each in joins[:2]))
        await harness.advance(1)  # both are closed
        received = await harness.send(*first, joins[2])
        assert not any(isinstance(item, CounterRejected) for item in received)


async def test_share_counts_from_zero_after_a_restart_and_the_limits_of_all_hold() -> None:
    store = MemoryStore()
    limits: dict[str, Any] = {"max_counters": 4, "max_share": 0.5}
    counted = []
    for run in range(3):
        async with site_server(store, **limits) as harness:
            if run == 0:
                harness.server.budgets.create("keys/*", BudgetRule(5, max_names=4))
            evil = await connect(harness, f"evil {run}", "token 1")
            for each in range(4):
                name = f"{run} {each}"
                ask = first_ask(f"keys/{name}", 1)
                await harness.send(*evil, Join(f"c {name}", 0, 1), family(f"f {name}"), ask)
            names = [name for name in harness.server.budgets.by_name if name != "keys/*"]
            counted.append((len(harness.server.counters), len(harness.server.families.by_name), len(names)))
    assert counted == [(2, 2, 2), (4, 4, 4), (4, 4, 4)]
