"""The host on a table: what is saved before what is sent, last words, and what is refused."""

import asyncio

from countless.core.messages import Report, SetTrigger, Snapshot
from countless.server.sessions.site_server import SiteServer
from countless.server.settings import Settings
from countless.server.storage.base import Changes, Config, StoreError
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import CounterRejected, Join, Leave, LeaveAck, Rejoin, Sync, SyncAck
from support.service import bench


class SlowStore(SqliteStore):
    """A disk that is full until somebody makes room."""

    full = False

    def save(self, changes: Changes) -> None:
        if self.full:
            raise StoreError("database or disk is full")
        super().save(changes)


def test_nothing_is_sent_or_shown_before_it_is_saved() -> None:
    async def story() -> None:
        store = SlowStore(None)
        async with bench(store) as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 5))
            line.got.clear()
            store.full = True
            table.host.on_frame(life, line, [Report("hits", 0, 9, 1), Sync(1)], 10)
            while table.host.failing is None:
                await asyncio.sleep(0)
            assert line.got == []
            assert table.host.counter("hits").published_answer.estimate == 5
            assert table.host.counter("hits").coordinator.published == 9
            store.full = False
            await table.host.flush()
            assert SyncAck(1) in line.got
            assert table.host.counter("hits").published_answer.estimate == 9
            assert table.host.failing is None

    asyncio.run(story())


def test_last_words_are_confirmed_however_often_they_are_said() -> None:
    async def story() -> None:
        store = SqliteStore(None)
        async with bench(store) as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 5), Join("misses", 0, 1))
            assert LeaveAck("hits") in await table.say(life, line, Leave("hits", 0, 8))
            assert await table.say(life, line, Leave("hits", 0, 8)) == [LeaveAck("hits")]
        async with bench(store) as table:  # it did not hear that, and the coordinator has restarted
            life, line = await table.connect("a")
            assert LeaveAck("hits") in await table.say(life, line, Join("hits", 0, 8), Report("hits", 0, 8, 1))
            assert table.host.counter("hits").coordinator.known_total == 8

    asyncio.run(story())


def test_a_coordinator_without_its_memory_asks_sites_to_begin_again() -> None:
    async def story() -> None:
        async with bench() as table:
            life, line = await table.connect("a")
            told = await table.say(life, line, Join("hits", 6, 20), Snapshot("hits", 6, 4), Report("hits", 6, 15, 2))
            assert Rejoin("hits", keep_count=True) in told
            told = await table.say(life, line, Join("hits", 0, 20))
            assert [item for item in told if isinstance(item, SetTrigger)]
            assert table.host.counter("hits").published_answer.estimate == 20

    asyncio.run(story())


def test_limits_are_refusals_not_crashes() -> None:
    async def story() -> None:
        async with bench(max_counters=2, max_counters_per_site=1) as table:
            a, line_a = await table.connect("a")
            b, line_b = await table.connect("b")
            c, line_c = await table.connect("c")
            await table.say(a, line_a, Join("one", 0, 1))
            told = await table.say(a, line_a, Join("two", 0, 1), Report("two", 0, 2, 1))
            assert [item.counter for item in told if isinstance(item, CounterRejected)] == ["two"]
            await table.say(b, line_b, Join("two", 0, 1))
            told = await table.say(c, line_c, Join("three", 0, 1))
            assert [item.counter for item in told if isinstance(item, CounterRejected)] == ["three"]
            assert sorted(table.host.counters) == ["one", "two"]

    asyncio.run(story())


class LoopStore(SqliteStore):
    """A disk that needs the loop to go on, as a broker does."""

    blocked = False
    gate: asyncio.Event
    loop: asyncio.AbstractEventLoop

    def save(self, changes: Changes) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self.gate.wait(), self.loop).result(5)
        except TimeoutError:
            self.blocked = True
        super().save(changes)


def test_the_last_save_waits_for_the_one_before_without_blocking_the_loop() -> None:
    async def story() -> None:
        store = LoopStore(None)
        store.gate, store.loop = asyncio.Event(), asyncio.get_running_loop()
        host = SiteServer(store, Settings())
        running = asyncio.create_task(host.run())
        host.create("hits", Config())
        while not store.gate._waiters:
            await asyncio.sleep(0)
        running.cancel()
        stopping = asyncio.create_task(host.stop())
        await asyncio.sleep(0)
        store.gate.set()
        await stopping
        assert not store.blocked
        assert list(store.load()) == ["hits"]

    asyncio.run(story())
