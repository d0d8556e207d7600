"""A token that joins counters and budgets with many processes, or uses many names, cannot fill the memory."""

import random
from typing import Any

import pytest

from countless.core.budget.messages import Ask, BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.family.rule import LABELS, FamilyRule
from countless.core.messages import Report
from countless.errors import LimitReached, ProtocolError
from countless.server.sessions.session_table import Session
from countless.server.storage.memory_store import MemoryStore
from countless.wire.budgets import BudgetLeave, BudgetRejected, SetBudgetRule
from countless.wire.families import FamilyJoin, FamilyRejected
from countless.wire.frames import VERSION, CounterRejected, Hello, Join, Leave, LeaveAck, UpItem
from countless.wire.keys import COUNTER, Key
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.spender import first_ask

Link = tuple[Session, FakeConnection]
LIMITS: dict[str, Any] = {"max_memberships": 10, "max_share": 0.5, "silent_after": 1.0}


async def connect(harness: SiteServerHarness, site: str, peer: str = "token 1", incarnation: int = 1) -> Link | None:
    connection = FakeConnection()
    session = await harness.server.on_hello(connection, Hello(VERSION, site, incarnation), peer)
    return None if session is None else (session, connection)


async def connected(harness: SiteServerHarness, site: str, peer: str = "token 1", incarnation: int = 1) -> Link:
    link = await connect(harness, site, peer, incarnation)
    assert link is not None
    return link


async def rejected(harness: SiteServerHarness, link: Link, *items: UpItem) -> list[str]:
    received = await harness.send(*link, *items)
    assert all("max_memberships" in item.reason for item in received if isinstance(item, CounterRejected))
    return [item.counter for item in received if isinstance(item, CounterRejected)]


def ask(budget: str, seq: int = 1) -> Ask:
    return first_ask(budget, 1, seq=seq)


async def refused(harness: SiteServerHarness, link: Link, *items: Ask) -> list[str]:
    received = await harness.send(*link, *items)
    assert all("max_memberships" in item.reason for item in received if isinstance(item, BudgetRejected))
    return [item.budget.name for item in received if isinstance(item, BudgetRejected)]


def require_same_sums(harness: SiteServerHarness) -> None:
    """Those of a recount."""
    sessions = list(harness.server.sessions)
    joined, names = harness.server.sessions.used
    periods = [each for budget in harness.server.budgets.by_name.values() for each in budget.periods.values()]
    given_up = sum(row.given_up for each in periods for row in each.coordinator.holder_rows)
    assert joined.total == sum(len(each.members) for each in sessions) + given_up
    for peer in {"", "token 1", "token 2"}:
        of_peer = [each for each in sessions if each.peer == peer]
        open_now = sum(len(each.members) for each in of_peer)
        assert open_now <= joined.used(peer) <= open_now + given_up
        named = [key.name for each in of_peer for key in (*each.ignored, *each.noted)]
        assert names.used(peer) == sum(1 + len(name) // 100 for name in named)


async def test_token_at_its_share_joins_nothing_more_and_what_it_has_joined_counts_on() -> None:
    store = MemoryStore()
    async with site_server(store, **LIMITS) as harness:
        evil = [await connected(harness, f"evil {number}") for number in range(3)]
        names = [f"c{number}" for number in range(4)]
        assert await rejected(harness, evil[0], *(Join(name, 0, 1) for name in names)) == []
        assert await rejected(harness, evil[1], *(Join(name, 0, 1) for name in names)) == names[1:]
        assert await rejected(harness, evil[2], Join("c0", 0, 1), Join("c1", 0, 1)) == names[:2]
        honest = await connected(harness, "web", "token 2")
        assert await rejected(harness, honest, *(Join(name, 0, 1) for name in names)) == []
        await harness.send(*evil[0], Report("c0", 0, 7, 7))
        assert harness.server.counter("c0").published_answer.estimate == 7 + 1 + 1
        received = await harness.send(*evil[0], Leave("c3", 0, 2))
        assert LeaveAck("c3") in received
        assert await rejected(harness, evil[1], Join("c2", 0, 1)) == []  # there is room again
        require_same_sums(harness)
    async with site_server(store, **LIMITS) as harness:
        used = [harness.server.sessions.used.joined.used(peer) for peer in ("", "token 1", "token 2")]
        assert used == [9, 0, 0]  # it belongs to no token until its site connects
        await connected(harness, "evil 1")
        await connected(harness, "web", "token 2")
        assert [harness.server.sessions.used.joined.used(peer) for peer in ("", "token 1", "token 2")] == [3, 2, 4]
        assert await connect(harness, "evil 0") is None  # it has left something, and continues as a new incarnation
        evil_again = await connected(harness, "evil 0", incarnation=2)
        assert await rejected(harness, evil_again, *(Join(name, 0, 9) for name in (*names[:3], "c4"))) == ["c4"]
        with pytest.raises(ProtocolError, match="no room for what the site has used with another"):
            await connected(harness, "evil 1", "token 2")
        await connected(harness, "evil 1", "token 3")  # what it has joined belongs to the token that connects
        used = [harness.server.sessions.used.joined.used(peer) for peer in ("token 1", "token 2", "token 3")]
        assert used == [3, 4, 2]


async def test_families_and_their_windows_are_memberships() -> None:
    async with site_server(wall_clock=lambda: 5 * 3600.0, **LIMITS) as harness:
        link = await connected(harness, "evil")
        names = ["pages@hour:5", "pages@hour:6", *(f"f{number}" for number in range(4))]
        received = await harness.send(*link, *(FamilyJoin(name, LABELS, 0.1, 0.0, 0, 1, 1, 0, 0) for name in names))
        refused = [item for item in received if isinstance(item, FamilyRejected)]
        assert [item.family for item in refused] == ["f3"]
        assert "max_memberships" in refused[0].reason
        harness.server.delete("pages")
        assert harness.server.sessions.used.joined.used("token 1") == 3
        require_same_sums(harness)


async def test_rejected_names_are_limited_and_forgotten_with_the_connection() -> None:
    limits = LIMITS | {"max_memberships": 40, "max_counters": 1}
    async with site_server(**limits) as harness:
        harness.server.create("the only one", FamilyRule(LABELS, 0.1))
        long = "n" * 390  # as much as four short ones
        links = [await connected(harness, f"evil {number}") for number in range(6)]
        joins = [FamilyJoin(f"{long} {each}", LABELS, 0.1, 0.0, 0, 1, 1, 1, 1) for each in range(3)]
        for link in links[:5]:
            harness.server.on_frame(*link, [Join("only", 0, 1), *joins[:1]], 10)
            harness.server.on_frame(*link, [*joins[:1]], 10)  # the same name again
        require_same_sums(harness)
        with pytest.raises(LimitReached, match="max_memberships"):
            harness.server.on_frame(*links[5], [*joins], 10)
        require_same_sums(harness)
        for link in links:
            harness.server.on_disconnect(*link)
        assert harness.server.sessions.used.names.total == 0


async def test_periods_of_budgets_are_memberships_also_after_their_process_was_given_up() -> None:
    store = MemoryStore()
    async with site_server(store, **LIMITS) as harness:
        harness.server.budgets.create("keys/*", BudgetRule(100))
        evil = await connected(harness, "evil")
        assert await refused(harness, evil, *map(ask, ["keys/0", "keys/1", "keys/2"])) == []
        harness.server.on_disconnect(*evil)
        again = await connect(harness, "evil", incarnation=2)
        assert again is not None
        await harness.advance(5.0)  # the first incarnation is retired
        assert harness.server.sessions.used.joined.used("token 1") == 3
        assert await refused(harness, again, *map(ask, ["keys/0", "keys/1", "keys/2"])) == ["keys/2"]
        assert await rejected(harness, again, Join("hits", 0, 1)) == ["hits"]
        require_same_sums(harness)
        honest = await connected(harness, "web", "token 2")
        assert await refused(harness, honest, *map(ask, ["keys/0", "keys/1", "keys/2"])) == []
        await harness.send(*again, BudgetLeave(BudgetId("keys/0", 0), 1, 0))  # what the first incarnation has spent
        assert await refused(harness, again, ask("keys/2")) == []
        require_same_sums(harness)
    async with site_server(store, **LIMITS) as harness:
        assert [harness.server.sessions.used.joined.used(peer) for peer in ("", "token 1")] == [8, 0]
        harness.server.budgets.delete("keys/*")
        assert harness.server.sessions.used.joined.total == 0


async def test_names_of_budgets_whose_rules_were_sent_are_limited_and_forgotten_with_the_connection() -> None:
    async with site_server(**LIMITS) as harness:
        harness.server.budgets.create("keys/*", BudgetRule(100, per="hour"))
        links = [await connected(harness, f"evil {number}") for number in range(3)]
        for link in links:
            received = await harness.send(*link, *(ask(f"keys/{number}") for number in range(4)))
            assert sum(isinstance(item, SetBudgetRule) for item in received) == 4  # it is sent in any case
        assert [len(session.noted) for session, _ in links] == [4, 1, 0]
        require_same_sums(harness)
        for link in links:
            harness.server.on_disconnect(*link)
        assert harness.server.sessions.used.names.total == 0


async def test_sums_are_those_of_a_recount_whatever_happens() -> None:
    rng = random.Random(3)  # noqa: S311
    limits = LIMITS | {"max_memberships": 1000, "forget_after": 20.0, "max_counters": 6}
    async with site_server(**limits) as harness:
        harness.server.budgets.create("keys/*", BudgetRule(1000))
        links: dict[str, Link] = {}
        for step in range(400):
            site, name = f"s{rng.randrange(4)}", f"c{rng.randrange(9)}"
            link = links.get(site)
            if link is None or link[0].connection is not link[1] or rng.random() < 0.05:
                new = await connect(harness, site, f"token {1 + rng.randrange(2)}", step // 40)
                links.pop(site, None)
                if new is not None:
                    links[site] = new
            elif rng.random() < 0.5:
                await harness.send(*link, Join(name, 0, step))
            elif Key(COUNTER, name) in link[0].members:
                await harness.send(*link, Leave(name, 0, step))
            elif rng.random() < 0.3:
                await harness.send(*link, ask(f"keys/{name}", step + 1))
            elif rng.random() < 0.2:
                harness.server.on_disconnect(*links.pop(site))
            elif rng.random() < 0.2 and harness.server.counters:
                harness.server.delete(rng.choice(sorted(harness.server.counters)))
            elif rng.random() < 0.2:
                await harness.advance(rng.choice([0.5, 2.0, 30.0]))
            require_same_sums(harness)
