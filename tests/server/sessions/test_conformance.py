"""What holds for every kind, without windows and in one of them: a kind that is new joins ALL_ITEMS."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from countless.randomness import SeededRandom
from countless.server.http.answers.windows import window_answer, window_list
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.storage.memory_store import MemoryStore
from countless.server.tuning import TUNING
from countless.wire.frames import VERSION, Hello, Sync, SyncAck, UpItem
from countless.wire.nats_subjects import shard_of
from simulator.cluster import LEASE_S, SHARDS, Cluster
from simulator.coordinator import Conditions
from simulator.virtual_loop import InlineExecutor, VirtualLoop
from support.hours import FIRST, HOUR, HourClock
from support.kinds_of_items import ALL_ITEMS, Items
from support.site_server import FakeConnection, SiteServerHarness, site_server

COUNTED = [items for items in ALL_ITEMS if items.opens_again]


def window(number: int, name: str = "requests") -> str:
    return f"{name}@hour:{FIRST + number}"


Start = Callable[..., AbstractAsyncContextManager[SiteServerHarness]]


@pytest.fixture
def clock() -> HourClock:
    return HourClock()


@pytest.fixture(params=ALL_ITEMS, ids=lambda items: str(items.kind))
def items(request: pytest.FixtureRequest) -> Items:
    found: Items = request.param
    return found


@pytest.fixture(params=["requests", window(0)], ids=["whole", "window"])
def text(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(items: Items, clock: HourClock) -> Start:
    """A coordinator that has what is called so, whoever creates it."""

    @asynccontextmanager
    async def started(text: str, store: MemoryStore | None = None, **settings: Any) -> AsyncIterator[SiteServerHarness]:
        async with site_server(store, wall_clock=clock, **settings) as harness:
            items.create(harness.server, text)
            yield harness

    return started


def types(received: list[Any]) -> list[type]:
    return [type(item) for item in received]


async def told(harness: SiteServerHarness, items: Items, incarnation: int = 1) -> dict[str, int]:
    """What the site `web` is told, whose incarnation is retired."""
    connection = FakeConnection()
    assert await harness.server.on_hello(connection, Hello(VERSION, "web", incarnation)) is None
    return items.told(connection.received)


def test_every_kind_is_here() -> None:
    kinds = SiteServerHarness(MemoryStore()).server._kinds
    assert {items.kind for items in ALL_ITEMS} == {kind.name for kind in kinds}


async def test_report_that_is_repeated_or_overtaken_is_counted_once(items: Items, text: str, start: Start) -> None:
    async with start(text) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *items.join(text), *items.report(text, 8))
        await harness.send(*web, *items.report(text, 5), *items.report(text, 8))
        assert items.total(harness.server) == 8


async def test_what_was_lost_with_a_connection_is_counted_after_the_next_join(
    items: Items, text: str, start: Start
) -> None:
    async with start(text) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *items.join(text), *items.report(text, 5))
        harness.server.on_disconnect(*web)
        web = await harness.connect("web")
        round = items.round(harness, text)
        await harness.send(*web, *items.join(text, 5), *items.report(text, 9, round))
        assert items.total(harness.server) == 9


async def test_frames_of_a_replaced_connection_are_ignored(items: Items, text: str, start: Start) -> None:
    async with start(text) as harness:
        session, old = await harness.connect("web")
        await harness.send(session, old, *items.join(text), *items.report(text, 5))
        session, new = await harness.connect("web")
        assert old.close_reason == "replaced by another connection of the same incarnation; was its state_dir copied?"
        harness.server.on_frame(session, old, items.report(text, 99), 10)
        harness.server.on_disconnect(session, old)
        assert (items.total(harness.server), session.connection) == (5, new)


async def test_leave_is_acknowledged_again_and_a_join_after_it_counts_nothing(
    items: Items, text: str, start: Start
) -> None:
    store = MemoryStore()
    async with start(text, store) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *items.join(text), *items.report(text, 8))
        for sent in (items.leave(text, 8), items.leave(text, 8)):
            assert types(await harness.send(*web, *sent)) == [items.left]
        assert (types(await harness.send(*web, *items.join(text, 8))) == [items.left]) == items.opens_again
        assert types(await harness.send(*web, *items.leave(text, 8))) == [items.left]
        assert (items.total(harness.server), web[0].members) == (8, {})
    async with start(text, store) as harness:
        assert items.total(harness.server) == 8


async def test_counts_survive_a_restart_and_go_on(items: Items, text: str, start: Start) -> None:
    store = MemoryStore()
    async with start(text, store) as harness:
        await harness.send(*await harness.connect("web"), *items.join(text), *items.report(text, 5))
    async with start(text, store) as harness:
        assert items.total(harness.server) == 5 <= items.most(harness.server)
        assert harness.server.recovering == (items in COUNTED)
        assert [key for session in harness.server.sessions for key in session.members] == [items.key(text)]
        web = await harness.connect("web")
        await harness.send(*web, *items.join(text, 7), *items.report(text, 7))
        assert items.total(harness.server) == 7
        await harness.send(*web, *items.leave(text, 7))
        assert not harness.server.recovering


def test_takeover_goes_on_with_what_the_former_owner_has_saved(items: Items, text: str, clock: HourClock) -> None:
    with closing(VirtualLoop(lambda: 0.0)) as loop:
        loop.run_until_complete(_take_over(items, text, clock))


async def _take_over(items: Items, text: str, clock: HourClock) -> None:
    """The owner of the shard is killed; another coordinator reads its log."""
    settings, names = Settings(nats_shards=SHARDS, nats_lease=LEASE_S, silent_after=1000.0), map(str, count())
    tuning = TUNING._replace(planning=InlineExecutor)
    conditions = Conditions(settings, tuning, lambda: False, lambda: 0.0, clock, names.__next__)
    cluster, shard = Cluster(SeededRandom(1), 2, conditions), shard_of(items.key(text), SHARDS)
    await cluster.start()
    former = cluster.owners()[shard]
    items.create(former, text)
    await _send(former, *items.join(text), *items.report(text, 5))
    await cluster.kill_owner(shard)
    await cluster.takeover()
    owner = cluster.owners()[shard]
    assert (owner is former, items.total(owner), owner.recovering) == (False, 5, items in COUNTED)
    await _send(owner, *items.join(text, 7), *items.report(text, 7), *items.leave(text, 7))
    assert (items.total(owner), owner.recovering) == (7, False)
    await cluster.close()


async def _send(server: SiteServer, *sent: UpItem) -> None:
    connection = FakeConnection()
    session = await server.on_hello(connection, Hello(VERSION, "web", 1))
    assert session is not None
    server.on_frame(session, connection, [*sent], 10)
    await server.flush()


@pytest.mark.parametrize("after_restore", [False, True])
async def test_site_says_what_an_older_copy_does_not_know(
    items: Items, text: str, start: Start, after_restore: bool
) -> None:
    store = MemoryStore()
    async with start(text, store) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *items.join(text), *items.report(text, 5))
        copy = MemoryStore()
        for second, part in store.snapshot().items():
            copy.save_at(part, second)
        await harness.send(*web, *items.report(text, 9))
    async with start(text, copy, after_restore=after_restore) as harness:
        assert items.total(harness.server) == 5
        await harness.send(*await harness.connect("web"), *items.join(text, 9), *items.report(text, 9))
        assert items.total(harness.server) == 9


async def test_retired_incarnation_is_told_what_is_known_of_it(items: Items, text: str, start: Start) -> None:
    store = MemoryStore()
    async with start(text, store, silent_after=1.0) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *items.join(text), *items.report(text, 5))
        harness.server.on_disconnect(*web)
        await harness.advance(2.0)
        assert items.silent(harness.server) == ("web",)
        second = await harness.connect("web", 2)
        await harness.send(*second, *items.join(text), *items.report(text, 3))
        assert (items.total(harness.server), items.silent(harness.server)) == (items.fold([5, 3]), ())
        assert await told(harness, items) == items.knows(text, 5)
    async with start(text, store) as harness:
        assert (items.total(harness.server), await told(harness, items)) == (items.fold([5, 3]), items.knows(text, 5))


async def test_what_is_deleted_begins_again_from_zero(items: Items, text: str, start: Start) -> None:
    store = MemoryStore()
    async with start(text, store) as harness:
        web, old = await harness.connect("web"), await harness.connect("old")
        await harness.send(*web, *items.join(text), *items.report(text, 5))
        await harness.send(*old, *items.join(text), *items.report(text, 2), *items.leave(text, 2))
        web[1].received.clear()
        items.delete(harness.server, "requests")
        await harness.server.flush()
        assert types(web[1].received) == [items.reset]
        assert [*store.load(items.kind), *store.tombstones(old[0].site_id)] == []
        assert types(await harness.send(*web, *items.report(text, 6))) == [*items.uninvited]  # it was under way
        items.create(harness.server, text)
        for site in (web, old):
            await harness.send(*site, *items.join(text), *items.report(text, 1))
        assert items.total(harness.server) == items.fold([1, 1])


async def test_what_is_deleted_before_it_is_saved_leaves_no_row(
    items: Items, text: str, start: Start, clock: HourClock
) -> None:
    store = MemoryStore()
    async with start(text, store) as harness:
        web = await harness.connect("web")
        harness.server.on_frame(*web, [*items.join(text), *items.report(text, 5), *items.leave(text, 5)], 10)
        clock.show(1)
        harness.server.tick()  # a window is closed
        items.delete(harness.server, "requests")
        await harness.server.flush()
        assert [*store.load(items.kind)] == []


async def test_join_beyond_a_limit_is_rejected_until_there_is_room(items: Items, text: str, start: Start) -> None:
    async with start(text, **items.limit) as harness:
        items.create(harness.server, "other")
        web = await harness.connect("web")
        await harness.send(*web, *items.join("other"))
        assert types(await harness.send(*web, *items.join(text))) == [items.rejected]
        for total in (5, 6):
            assert types(await harness.send(*web, *items.report(text, total))) == [*items.uninvited]
        items.delete(harness.server, "other")
        await harness.send(*web, *items.join(text), *items.report(text, 6))
        assert items.total(harness.server) == 6


async def test_at_its_edge_a_window_ends_and_the_next_one_counts_from_zero(
    items: Items, start: Start, clock: HourClock
) -> None:
    """The site's clock is ahead: it counts in the next window while the coordinator's shows this one."""
    store = MemoryStore()
    async with start(window(0), store) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *items.join(window(0)), *items.report(window(0), 5))
        await harness.send(*web, *items.join(window(1)), *items.report(window(1), 2))
        assert items.open_windows(harness.server) == {FIRST: 5, FIRST + 1: 2}
        clock.show(1)
        await harness.send(*web, *items.report(window(0), 6), *items.leave(window(0), 6))
        assert items.open_windows(harness.server).get(FIRST, 6) == 6
        await harness.advance(1)
        await harness.advance(HOUR)
    async with start(window(0), store) as harness:
        assert items.open_windows(harness.server) == {FIRST + 1: 2}
        late = await harness.connect("late")
        opened = items.rejected not in types(await harness.send(*late, *items.join(window(0))))
        assert opened == (FIRST in items.open_windows(harness.server)) == items.opens_again


@pytest.mark.parametrize("items", COUNTED, ids=lambda items: str(items.kind))
async def test_closed_window_opens_again_for_a_late_site(items: Items, start: Start, clock: HourClock) -> None:
    store = MemoryStore()
    async with start(window(0), store) as harness:
        web, late = await harness.connect("web"), await harness.connect("late")
        await harness.send(*web, *items.join(window(0)), *items.report(window(0), 5), *items.join(window(1)))
        clock.show(1)
        await harness.send(*web, *items.leave(window(0), 5), *items.report(window(1), 2))
        await harness.advance(1)
        found = items.found(harness.server, "requests")
        assert (dict(found.closed.youngest(9)), list(found.open)) == ({FIRST: 5}, [FIRST + 1])
        await harness.send(*late, *items.join(window(0)), *items.report(window(0), 4))
        together = items.fold([5, 2, 4])
        assert (len(found.closed), sorted(found.open), found.known_total) == (0, [FIRST, FIRST + 1], together)
    async with start(window(0), store) as harness:
        late = await harness.connect("late")
        await harness.send(*late, *items.join(window(0), 4), *items.leave(window(0), 4))
        await harness.advance(1)
        found = items.found(harness.server, "requests")
        assert (dict(found.closed.youngest(9)), found.known_total) == ({FIRST: items.fold([5, 4])}, together)


@pytest.mark.parametrize("items", COUNTED, ids=lambda items: str(items.kind))
async def test_window_that_is_not_kept_stays_in_the_total(items: Items, start: Start, clock: HourClock) -> None:
    store = MemoryStore()
    async with start(window(0), store) as harness:
        web = await harness.connect("web")
        for number, total in enumerate((5, 2, 3)):
            clock.show(number)
            await harness.send(*web, *items.join(window(number)), *items.report(window(number), total))
            await harness.send(*web, *(items.leave(window(number - 1), (5, 2, 3)[number - 1]) if number else ()))
        found = items.found(harness.server, "requests")
        found.reconfigure(replace(found.spec, windows=replace(found.rule, keep=1)))
        await harness.advance(1)
        assert (list(found.closed), list(found.open)) == ([FIRST + 1], [FIRST + 2])
        assert (found.known_total, found.published_answer.estimate) == (items.fold([5, 2, 3]),) * 2
        assert [row.estimate for row in window_list("requests", [found], 9).windows] == [2, 3]
        assert (window_answer(found, "last").estimate, window_answer(found, "now").estimate) == (2, 3)
        both = found.spans.span((FIRST + 1) * HOUR, (FIRST + 3) * HOUR, clock())
        everything = found.spans.span(FIRST * HOUR, (FIRST + 3) * HOUR, clock())
        assert both.lower <= both.estimate == items.fold([2, 3]) <= both.upper
        assert everything.lower <= items.fold([5, 2, 3]) <= everything.upper
    async with start(window(0), store) as harness:
        found = items.found(harness.server, "requests")
        assert (list(found.closed), found.known_total) == ([FIRST + 1], items.fold([5, 2, 3]))


@pytest.mark.parametrize("items", COUNTED, ids=lambda items: str(items.kind))
async def test_window_that_the_site_does_not_know_is_lost(items: Items, start: Start, clock: HourClock) -> None:
    """The state is an older copy: the site has left the window since then."""
    async with start(window(0)) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *items.join(window(0)), *items.report(window(0), 5))
        harness.server.on_disconnect(*web)
        web = await harness.connect("web")
        clock.show(1)
        assert SyncAck(1) in await harness.send(*web, *items.join(window(1)), *items.report(window(1), 2), Sync(1))
        found = items.found(harness.server, "requests")
        assert list(found.losses.at([FIRST, FIRST + 1])) == [1, 1]
        assert types(await harness.send(*web, *items.join(window(0), 5)))[:1] == [items.left]
