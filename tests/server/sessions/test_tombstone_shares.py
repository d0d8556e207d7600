"""A token that invents incarnations cannot fill the disk with tombstones, and nothing is lost or counted twice."""

from pathlib import Path
from typing import Any

import pytest

from countless.core.messages import Report, SiteId
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import DAY_S, TombstoneShares, tombstone_bytes
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tuning import TUNING
from countless.wire.families import FamilyJoin, FamilyLabels, FamilyRejected, FamilyReport
from countless.wire.frames import VERSION, CounterRejected, Hello, IncarnationRetired, Join, Leave, LeaveAck
from countless.wire.incarnations import first_of
from countless.wire.keys import ALL, COUNTER, Key
from support.site_server import FakeConnection, SiteServerHarness, site_server

HITS = Key(COUNTER, "hits")
SIZE = tombstone_bytes(SiteId("evil", 1), HITS)
WATERMARK_SIZE = tombstone_bytes(SiteId("evil", 1), Key(COUNTER, "hits", "hour", ALL))
LIMITS: dict[str, Any] = {"max_tombstone_mb": 1, "max_share": 10 * SIZE / 1e6, "silent_after": 1.0}  # ten of one token
REASON = "max_share of max_tombstone_mb"


async def connect(
    harness: SiteServerHarness, incarnation: int, peer: str = "token 1", site: str = "evil"
) -> tuple[Session, FakeConnection]:
    connection = FakeConnection()
    session = await harness.server.on_hello(connection, Hello(VERSION, site, incarnation), peer)
    assert session is not None
    return session, connection


def refusals(items: list[Any]) -> list[str]:
    return [item.reason for item in items if isinstance(item, CounterRejected | FamilyRejected)]


def kept(store: MemoryStore | SqliteStore, incarnations: range, site: str = "evil") -> int:
    return sum(len(store.tombstones(SiteId(site, each))) for each in incarnations)


@pytest.mark.slow
@pytest.mark.parametrize("polite", [True, False])
async def test_invented_incarnations_leave_a_bounded_number_of_tombstones(polite: bool) -> None:
    """`polite` ones leave; the others are retired when the next one connects."""
    store, accepted = MemoryStore(), 0
    async with site_server(store, **LIMITS) as harness:
        for incarnation in range(1, 100):
            session, connection = await connect(harness, incarnation)
            reasons = refusals(await harness.send(session, connection, Join("hits", 0, 5)))
            if reasons:
                assert REASON in reasons[0]
            else:
                accepted += 1
                await harness.send(session, connection, *([Leave("hits", 0, 5)] if polite else []))
            harness.server.on_disconnect(session, connection)
            await harness.advance(2.0)
        assert harness.server.counter("hits").published_answer.estimate == 5 * accepted
        assert harness.server.dropped["counter refused"] == 99 - accepted
        assert kept(store, range(100)) <= accepted == 10
        honest = await connect(harness, 1, "token 2", "web")
        assert refusals(await harness.send(*honest, Join("hits", 0, 7))) == []
        assert harness.server.counter("hits").published_answer.estimate == 5 * accepted + 7


async def test_members_of_a_token_at_its_limit_count_on_and_leave_with_their_counts() -> None:
    store = MemoryStore()
    async with site_server(store, **LIMITS) as harness:
        members = [await connect(harness, number, site=f"a{number:02}b") for number in range(12)]
        reasons = [refusals(await harness.send(*member, Join("hits", 0, 10))) for member in members]
        assert [bool(each) for each in reasons] == [False] * 10 + [True] * 2
        harness.server.on_disconnect(*members[0])
        again = await connect(harness, 0, site="a00b")  # it is known: it joins again
        assert refusals(await harness.send(*again, Join("hits", 0, 10))) == []
        for number, member in enumerate([again, *members[1:10]]):
            await harness.send(*member, Report("hits", 0, 11 + number, 1))
            assert LeaveAck("hits") in await harness.send(*member, Leave("hits", 0, 20 + number))
        assert harness.server.counter("hits").published_answer.estimate == sum(range(20, 30))
        harness.server.on_disconnect(*again)
        connection = FakeConnection()
        assert await harness.server.on_hello(connection, Hello(VERSION, "a00b", 0), "token 1") is None
        assert connection.received == [IncarnationRetired((("hits", 20),))]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_token_has_room_again_when_tombstones_are_forgotten(kind: str, tmp_path: Path) -> None:
    now = 20_000.0 * DAY_S
    store = MemoryStore(lambda: now) if kind == "memory" else SqliteStore(tmp_path / "state.db", lambda: now)
    limits = LIMITS | {"remember_for": 2 * DAY_S}
    async with site_server(store, wall_clock=lambda: now, **limits) as harness:
        for incarnation in range(10):
            session, connection = await connect(harness, incarnation)
            await harness.send(session, connection, Join("hits", 0, 1), Leave("hits", 0, 1))
            harness.server.on_disconnect(session, connection)
        assert harness.server.tombstones.largest == 10 * SIZE
        session, connection = await connect(harness, first_of(int(now)))
        assert REASON in refusals(await harness.send(session, connection, Join("hits", 0, 1)))[0]
        honest = await connect(harness, first_of(int(now)), "token 2", "web")
        assert refusals(await harness.send(*honest, Join("hits", 0, 1))) == []
        for days, is_full in ((2, True), (1, False)):
            now += days * DAY_S
            for _ in range(TUNING.clock_readings):
                await harness.advance(TUNING.prune_interval_s + 1)
            assert bool(kept(store, range(10))) == is_full
            session, connection = await connect(harness, first_of(int(now)))
            assert bool(refusals(await harness.send(session, connection, Join("hits", 0, 1)))) == is_full
        assert harness.server.tombstones.largest == SIZE


async def test_windows_of_a_process_count_once_and_those_of_a_retired_one_each() -> None:
    hour = 490_000
    limits = LIMITS | {"max_share": 10 * WATERMARK_SIZE / 1e6}
    now = hour * 3600.0
    async with site_server(wall_clock=lambda: now, **limits) as harness:
        session, connection = await connect(harness, 1)
        for later in range(50):
            now = (hour + later) * 3600.0
            name = f"hits@hour:{hour + later}"
            assert refusals(await harness.send(session, connection, Join(name, 0, 1), Leave(name, 0, 1))) == []
        assert harness.server.tombstones.largest == WATERMARK_SIZE
        before = harness.server.tombstones.largest
        names = [f"hits@hour:{hour + 49 - age}" for age in range(3)]
        other, connection = await connect(harness, 2)
        await harness.send(other, connection, *(Join(name, 0, 1) for name in names))
        harness.server.on_disconnect(other, connection)
        await harness.advance(2.0)
        assert harness.server.tombstones.largest > before + 3 * WATERMARK_SIZE


async def test_labels_of_families_of_retired_incarnations_count() -> None:
    async with site_server(**LIMITS) as harness:
        accepted = 0
        for incarnation in range(1, 20):
            session, connection = await connect(harness, incarnation)
            join = FamilyJoin("f", "labels", 0.1, 0.0, 0, 1, 1, 0, 0)
            if not refusals(await harness.send(session, connection, join)):
                accepted += 1
                labels = FamilyLabels("f", tuple("abcd"))
                report = FamilyReport("f", 0, 4, (1, 1, 2, 1, 3, 1, 4, 1))
                await harness.send(session, connection, labels, report)
            harness.server.on_disconnect(session, connection)
            await harness.advance(2.0)
        assert 1 <= accepted <= 3
        assert harness.server.tombstones.largest < 20 * SIZE


def test_operator_has_no_limit_and_an_estimate_grows_with_the_names() -> None:
    shares = TombstoneShares(1, 1e-6, lambda: 0.0)
    shares.add("", SiteId("a", 1), [(HITS, None)])
    assert (shares.largest, shares.is_full("")) == (0, False)
    shares.add("token 1", SiteId("é" * 100, 1), [(HITS, None)])
    assert (shares.largest, shares.is_full("token 1"), shares.is_full("token 2")) == (478, True, False)
