"""A disk that hangs: what was shown stays to be read, nothing is said too early, and nothing grows."""

import asyncio
from collections.abc import Coroutine
from threading import Event
from typing import Any

import pytest

from countless.core.messages import Report
from countless.server.cluster.log_store import Fenced
from countless.server.storage.base import Changes
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import DownItem, Hello, Join, Sync, SyncAck
from support.service import Bench, FakeConnection, bench


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


class HeldStore(SqliteStore):
    """Its disk does nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__(None)
        self.free, self.reached = Event(), Event()
        self.free.set()

    def hold(self) -> None:
        self.free.clear()
        self.reached.clear()

    def save(self, changes: Changes) -> None:
        self.reached.set()
        assert self.free.wait(20)
        super().save(changes)


async def hung(table: Bench, store: HeldStore) -> None:
    """Until a save has come to the disk, and hangs there."""
    assert await asyncio.to_thread(store.reached.wait, 20)


def pending(table: Bench) -> int:
    """All that waits in the post."""
    return sum(table.host.debug_state()["pipeline"].values())


def test_reads_go_on_with_what_was_shown_and_nothing_is_sent_before_it_is_saved() -> None:
    async def story() -> None:
        store = HeldStore()
        async with bench(store) as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 5))
            line.got.clear()
            store.hold()
            table.host.on_frame(life, line, [Report("hits", 0, 9, 1), Sync(1)], 10)
            await hung(table, store)
            table.host.tick()
            assert (table.host.counter("hits").published_answer.estimate, line.got) == (5, [])
            store.free.set()
            await table.host.flush()
            assert table.host.counter("hits").published_answer.estimate == 9
            assert line.got == [SyncAck(1)]

    play(story())


def test_a_flood_while_the_disk_hangs_grows_nothing_and_loses_nothing() -> None:
    async def story() -> None:
        store = HeldStore()
        async with bench(store) as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 0))
            store.hold()
            table.host.on_frame(life, line, [Report("hits", 0, 1, 1)], 10)
            await hung(table, store)
            for number in range(2, 5_000):
                table.host.on_frame(life, line, [Report("hits", 0, number, number), Sync(number)], 20)
            assert pending(table) == 2  # a line, an answer
            store.free.set()
            await table.host.flush()
            assert table.host.counter("hits").coordinator.known_total == 4_999
            assert line.got[-1] == SyncAck(4_999)

    play(story())


def test_whoever_goes_on_asking_while_the_disk_hangs_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countless.server.storage.commit.MAX_QUEUED_ITEMS", 2_500)

    async def story() -> None:
        store = HeldStore()
        async with bench(store, max_counters=1) as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 0))
            store.hold()
            table.host.on_frame(life, line, [Report("hits", 0, 1, 1)], 10)
            await hung(table, store)
            more: list[Any] = [Join("another", 0, 1), Sync(1)]
            for _ in range(10):
                table.host.on_frame(life, line, more * 1_000, 10)
                assert pending(table) <= 2_503
            assert line.closed == "too many items queued while the state cannot be saved"
            store.free.set()

    play(story())


def test_a_newcomer_waits_for_the_disk_and_no_longer() -> None:
    async def story() -> None:
        store = HeldStore()
        async with bench(store) as table:
            life, line = await table.connect("a")
            store.hold()
            table.host.on_frame(life, line, [Join("hits", 0, 1)], 10)
            await hung(table, store)
            second = FakeConnection()
            greeting = asyncio.create_task(table.host.on_hello(second, Hello(1, "b", 1)))
            await asyncio.sleep(0)
            assert not greeting.done()
            store.free.set()
            assert await greeting is not None
            await table.host.flush()
            told: list[DownItem] = second.got
            assert len(told) == 1

    play(story())


class TakenStore(SqliteStore):
    """Another coordinator has taken over what is kept here."""

    def save(self, changes: Changes) -> None:
        raise Fenced("taken over")


def test_who_was_deposed_is_told_so_by_its_name() -> None:
    """A shard that goes to another coordinator is no fault of this one: its owner must recognise the error."""

    async def story() -> None:
        post = CommitPipeline(TakenStore(None), {})
        post.prune_tombstones(0)
        with pytest.raises(Fenced):
            await post.run()

    play(story())
