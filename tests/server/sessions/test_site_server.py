"""What sites send, and a restart: counts are taken in once, and the published total does not fall."""

import pytest

from countless.core.answer import State
from countless.core.messages import Report, Snapshot, StartRound
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import StateStore
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import (
    CounterRejected,
    Join,
    Leave,
)
from support.site_server import site_server


@pytest.mark.parametrize("store", [MemoryStore(), SqliteStore(None)], ids=["memory", "sqlite"])
async def test_restart_requests_snapshots_and_the_total_does_not_fall(store: StateStore) -> None:
    async with site_server(store) as harness:
        for site, count in (("a", 30), ("b", 10)):
            session, connection = await harness.connect(site)
            await harness.send(session, connection, Join("hits", 0, count))
        assert harness.server.counter("hits").published_answer.estimate == 40
    async with site_server(store) as harness:
        await harness.server.flush()
        counter = harness.server.counter("hits")
        answer = counter.published_answer
        assert (harness.server.recovering, answer.state, answer.estimate) == (True, State.LEARNING, 40)
        for site, count in (("a", 35), ("b", 11)):
            session, connection = await harness.connect(site)
            received = await harness.send(session, connection, Join("hits", 0, count))
            start_round = next(item for item in received if isinstance(item, StartRound))
            assert counter.published_answer.estimate >= 40
            await harness.send(session, connection, Snapshot("hits", start_round.round, count))
        answer = counter.published_answer
        assert (harness.server.recovering, answer.estimate, counter.coordinator.known_total) == (False, 46, 46)


async def test_site_of_a_coordinator_that_lost_its_state_keeps_its_count_and_is_sent_a_higher_round() -> None:
    async with site_server() as harness:
        session, connection = await harness.connect("a")
        in_round_6 = Join("hits", 6, 20), Snapshot("hits", 6, 4), Report("hits", 6, 15, 2)
        received = await harness.send(session, connection, *in_round_6)
        assert [item.round for item in received if isinstance(item, StartRound)] == [7]
        await harness.send(session, connection, Snapshot("hits", 7, 20))
        assert harness.server.counter("hits").published_answer.estimate == 20


async def test_counters_beyond_the_limits_are_rejected_and_their_messages_ignored() -> None:
    async with site_server(max_counters=2, max_counters_per_site=1) as harness:
        a, connection_a = await harness.connect("a")
        b, connection_b = await harness.connect("b")
        c, connection_c = await harness.connect("c")
        await harness.send(a, connection_a, Join("one", 0, 1))
        received = await harness.send(a, connection_a, Join("two", 0, 1), Report("two", 0, 2, 1))
        assert [item.counter for item in received if isinstance(item, CounterRejected)] == ["two"]
        await harness.send(b, connection_b, Join("two", 0, 1))
        received = await harness.send(c, connection_c, Join("three", 0, 1))
        assert [item.counter for item in received if isinstance(item, CounterRejected)] == ["three"]
        assert sorted(harness.server.counters) == ["one", "two"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_totals_beyond_the_integers_of_a_float_are_exact_after_a_restart(kind: str) -> None:
    """From 2^53 on a float has no odd numbers."""
    store: StateStore = MemoryStore() if kind == "memory" else SqliteStore(None)
    total = 2**60 + 1
    async with site_server(store, scheme="exact") as harness:
        web = await harness.connect("web")
        await harness.send(*web, Join("hits", 0, total), Join("hours@hour:490000", 0, total))
        await harness.send(*web, Leave("hours@hour:490000", 0, total))
    async with site_server(store, scheme="exact") as harness:
        await harness.advance(0.5)
        for name in ("hits", "hours"):
            counter = harness.server.counter(name)
            assert (counter.known_total, counter.largest_published) == (total, total)
            assert isinstance(counter.largest_published, int)
