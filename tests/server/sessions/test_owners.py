"""What a token uses is still its own after a restart: otherwise it could use its share again after each of them."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from countless.core.budget.messages import Ask, BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.family.rule import LABELS
from countless.errors import LimitReached, ProtocolError
from countless.server.cluster.records import from_saved, to_saved
from countless.server.sessions.session_table import Session
from countless.server.sessions.site_server import SiteServer
from countless.server.settings import Settings
from countless.server.storage.base import Changes, Owned, StateStore
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.families import FamilyJoin, FamilyLabels, FamilyLeave, FamilyRejected, FamilyReport
from countless.wire.frames import VERSION, BudgetRejected, CounterRejected, Hello, Join, Leave, Sync, UpItem
from support.site_server import FakeConnection, SiteServerHarness, site_server

HOUR, FIRST = 3600.0, 490_000
TOKENS = ("", "token 1", "token 2")
Link = tuple[Session, FakeConnection]


async def connect(harness: SiteServerHarness, site: str, peer: str, incarnation: int = 1) -> Link | None:
    connection = FakeConnection()
    session = await harness.server.on_hello(connection, Hello(VERSION, site, incarnation), peer)
    return None if session is None else (session, connection)


def family_join(name: str) -> FamilyJoin:
    return FamilyJoin(name, LABELS, 0.1, 0.0, 0, 1, 1, 0, 0)


def ask(budget: str) -> Ask:
    return Ask(BudgetId(budget, 0), 0, 1, 0, 0, 0, 1)


def in_memory(store: StateStore) -> StateStore:
    """As a coordinator reads it from the log of a shard."""
    assert isinstance(store, MemoryStore)
    read = MemoryStore()
    for saved_at, changes in store.snapshot().items():
        read.save_at(from_saved(to_saved(changes, saved_at)), saved_at)
    return read


def in_sqlite(store: StateStore) -> StateStore:
    return store


def used(server: SiteServer) -> dict[str, list[int]]:
    """By token, without what belongs to a connection."""
    registry, families, sessions = server._registry, server._family_registry, server.sessions
    idle = [session for session in sessions if session.connection is not None and not session.is_member]
    numbers = {(name, each.site_id) for each in sessions for name in each.labels}
    labels = families.label_shares
    named = {
        peer: sum(
            by_peer.get(peer, 0)
            for part, by_peer in labels._parts.items()
            if part.numbers and (part.family, part.site_id) in numbers
        )
        for peer in TOKENS
    }
    return {
        peer: [
            sessions.shares.amounts.used(peer) - sum(session.peer == peer for session in idle),
            sessions.used.joined.used(peer),
            registry._shares.amounts.used(peer),
            registry._window_shares.amounts.used(peer),
            families._shares.amounts.used(peer),
            families._window_shares.amounts.used(peer),
            labels.bytes.used(peer) - named[peer],
            server.budgets.templates.used_by("keys/*", peer),
            server.tombstones._bytes.used(peer),
        ]
        for peer in TOKENS[1:]
    }


@pytest.mark.parametrize("reopened", [in_memory, in_sqlite])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
async def test_every_token_uses_after_a_restart_what_it_used_before(
    reopened: Callable[[StateStore], StateStore], seed: int
) -> None:
    rng, now = random.Random(seed), FIRST * HOUR  # noqa: S311
    settings: dict[str, Any] = {"silent_after": 1.0, "forget_after": 100.0, "max_counters": 12, "max_label_mb": 1}

    def wall_clock() -> float:
        return now

    store: StateStore = MemoryStore(wall_clock) if reopened is in_memory else SqliteStore(None, wall_clock)
    links: dict[str, Link] = {}
    seen: set[int] = set()  # of the kinds of things that are compared: those that a token has used

    def names(kind: str) -> str:
        number = rng.randrange(4)
        return f"{kind}{number}@hour:{int(now // HOUR) - rng.randrange(2)}" if number == 3 else f"{kind}{number}"

    async with site_server(store, wall_clock=wall_clock, **settings) as harness:
        server = harness.server
        server.budgets.create("keys/*", BudgetRule(1000))
        for step in range(300):
            site, action = f"s{rng.randrange(4)}", rng.random()
            link = links.get(site)
            if link is None or link[0].connection is not link[1]:
                links.pop(site, None)
                new = await connect(harness, site, rng.choice(TOKENS), step // 30)
                if new is not None:
                    links[site] = new
                    await harness.send(*new, Sync(1))
            elif action < 0.25:
                await harness.send(*link, Join(names("c"), 0, step))
            elif action < 0.5:
                name = names("f")
                labels = tuple(f"{rng.randrange(40)}" for _ in range(3))
                report = FamilyReport(name, 0, 3, (1, 1, 2, 1, 3, 1))
                items: list[UpItem] = [family_join(name), FamilyLabels(name, labels), report]
                await harness.send(*link, *items, *([FamilyLeave(name, 0, 1, 1, 0, 0)] if action < 0.35 else []))
            elif action < 0.6:
                await harness.send(*link, ask(f"keys/{rng.randrange(9)}"))
            elif action < 0.7 and link[0].memberships:
                await harness.send(*link, Leave(rng.choice(sorted(link[0].memberships)), 0, step))
            elif action < 0.8:
                server.on_disconnect(*links.pop(site))
            elif action < 0.85:
                for name in sorted(server.names)[:1]:
                    server.delete(name)
            else:
                now += rng.choice([0.0, HOUR])
                await harness.advance(rng.choice([0.5, 2.0, 200.0]))
            if step % 5:
                continue
            await harness.advance(0.0)  # a window that has ended is closed by a restart, too
            before = used(server)
            restarted = SiteServer(reopened(store), Settings(**settings), wall_clock=wall_clock)
            assert used(restarted) == before, f"seed {seed}, step {step}"
            restarted.planner.stop()
            seen |= {kind for each in before.values() for kind, n in enumerate(each) if n}
    assert len(seen) == 9


async def test_share_of_counters_families_sites_and_names_is_used_once_whatever_is_restarted() -> None:
    store = MemoryStore()
    limits: dict[str, Any] = {"max_counters": 4, "max_sites": 4, "max_share": 0.5}
    accepted = 0
    for run in range(3):
        async with site_server(store, **limits) as harness:
            if run == 0:
                harness.server.budgets.create("keys/*", BudgetRule(5, max_names=4))
            for each in range(3):
                try:
                    link = await connect(harness, f"evil {run} {each}", "token 1")
                except ProtocolError:  # max_share of max_sites
                    link = await connect(harness, f"evil 0 {each % 2}", "token 1")
                assert link is not None
                new = f"{run} {each}"
                received = await harness.send(
                    *link, Join(f"c {new}", 0, 1), family_join(f"f {new}"), ask(f"keys/{new}")
                )
                refused = [
                    item for item in received if isinstance(item, CounterRejected | FamilyRejected | BudgetRejected)
                ]
                assert all("max_share" in item.reason for item in refused)
                accepted += 3 - len(refused)
                harness.server.on_disconnect(*link)
            assert (accepted, len(harness.server.counters), len(harness.server.sessions)) == (6, 2, 2)
    async with site_server(store, **limits) as harness:
        web = await connect(harness, "web", "token 2")
        assert web is not None
        received = await harness.send(*web, Join("hits", 0, 1), family_join("pages"), ask("keys/web"))
        assert not any(isinstance(item, CounterRejected | FamilyRejected | BudgetRejected) for item in received)


async def test_site_without_a_connection_whose_last_counter_is_deleted_makes_room() -> None:
    async with site_server(max_sites=4, max_share=0.5) as harness:
        joins: list[UpItem] = [Join("hits", 0, 1), family_join("pages")]
        for number, item in enumerate(joins):
            link = await connect(harness, f"pod {number}", "token 1")
            assert link is not None
            await harness.send(*link, item)
            harness.server.on_disconnect(*link)
        harness.server.delete("hits")
        harness.server.delete("pages")
        assert used(harness.server)["token 1"][0] == len(harness.server.sessions) == 0


async def test_owner_of_what_an_earlier_version_has_deleted_is_forgotten() -> None:
    """It reads and writes the same log, without owners."""
    store, kinds = MemoryStore(), ["counter", "budget", "site", "given up"]
    store.save(Changes(owners={Owned(kind, "1 gone"): "token 1" for kind in kinds}))
    async with site_server(store) as harness:
        await harness.server.flush()
        assert store.load_owners() == {}


async def test_share_of_labels_is_used_once_whatever_is_restarted() -> None:
    store = SqliteStore(None)
    limits: dict[str, Any] = {"max_label_mb": 1, "max_share": 0.01}
    accepted = []
    for run in range(3):
        async with site_server(store, **limits) as harness:
            link = await connect(harness, f"evil {run}", "token 1")
            assert link is not None
            await harness.send(*link, family_join("pages"))
            try:
                for each in range(1, 50):
                    report = FamilyReport("pages", 0, each, (each, 1))
                    await harness.send(*link, FamilyLabels("pages", (f"{run} {each}",)), report)
            except LimitReached:
                harness.server.on_disconnect(*link)
            family = harness.server.families.by_name["pages"]
            accepted.append(len(family.coordinator.known))
    assert 10 < accepted[0] < 50
    assert accepted[2] <= accepted[0] + 10  # what the connections of the first run had used was free again
