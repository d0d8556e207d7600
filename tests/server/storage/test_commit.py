"""The commit pipeline while saves hang or fail: nothing is published or sent too early, and nothing grows."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from countless.core.answer import State
from countless.core.messages import Report, SiteId
from countless.server.cluster.log_store import Fenced
from countless.server.http.answers.published import public_view
from countless.server.http.answers.windows import window_answer
from countless.server.settings import Config, Settings
from countless.server.site_server import SiteServer
from countless.server.storage.base import StoreError
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.health import SLOW_SAVE_S
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import Changes, Tombstone, What
from countless.wire.families import FamilyJoin
from countless.wire.frames import VERSION, Hello, Join, Leave, LeaveAck, Sync, SyncAck, UpItem
from countless.wire.keys import COUNTER, Key
from support.saved import load_counters
from support.service import TIMEOUT_S
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.stores import FullStore, PausedStore
from support.waiting import eventually


def waiting_items(harness: SiteServerHarness) -> int:
    return sum(harness.server.debug_state()["pipeline"].values())


async def test_nothing_is_published_or_sent_while_saves_fail(caplog: pytest.LogCaptureFixture) -> None:
    store = FullStore()
    async with site_server(store) as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits", 0, 5))
        connection.received.clear()
        store.full = True
        harness.server.on_frame(session, connection, [Report("hits", 0, 9, 1), Sync(1)], 10)
        await eventually(lambda: harness.server.failing is not None)
        assert connection.received == []
        counter = harness.server.counter("hits")
        assert (counter.published_answer.estimate, counter.coordinator.published) == (5, 9)
        store.full = False
        await harness.server.flush()
        assert SyncAck(1) in connection.received
        assert counter.published_answer.estimate == 9
    failed, works = caplog.records
    assert (failed.exc_info, failed.getMessage()) == (
        None,
        "answers frozen, save retried every second: error=database or disk is full",
    )
    assert works.getMessage().startswith("save succeeded, answers are published again: failures=")
    assert harness.server.failing is None


async def test_answers_say_that_they_are_of_the_last_save_while_saves_fail() -> None:
    """Families and windows as well; a watch is told, and a request that has to be saved fails with the reason."""
    store, now = FullStore(), 490_000 * 3600.0
    async with site_server(store, wall_clock=lambda: now) as harness:
        session, connection = await harness.connect("a")
        joins = Join("hits", 0, 5), Join("hourly@hour:490000", 0, 5), FamilyJoin("pages", "labels", 0.1, 0.0, *[1] * 5)
        await harness.send(session, connection, *joins)
        server = harness.server
        shown = [server.counter("hits"), server.counter("hourly"), server.families.get("pages")]
        before = [each.published_answer.state for each in shown]
        assert State.DEGRADED not in before
        watched = shown[0].changed
        store.full, harness.time = True, 100.0
        server.on_frame(session, connection, [Report("hits", 0, 9, 1)], 10)
        with pytest.raises(StoreError, match="cannot be saved at present: database or disk is full"):
            await server.require_saved()
        with pytest.raises(StoreError):  # a process that is not known yet: its tombstones cannot be read
            await server.on_hello(FakeConnection(), Hello(VERSION, "b", 1))
        harness.time = 130.0
        assert [each.published_answer.state for each in shown] == [State.DEGRADED] * 3
        assert (watched.is_set(), server.health.behind_s, server.health.failures > 0) == (True, 30.0, True)
        read = [public_view(each).as_of for each in shown] + [window_answer(server.counter("hourly"), "now").as_of]
        assert max(map(datetime.fromisoformat, read)) < datetime.now(UTC) - timedelta(seconds=29)
        store.full = False
        await server.flush()
        assert ([each.published_answer.state for each in shown], server.health.behind_s) == (before, 0.0)


async def test_answers_say_that_they_are_old_while_a_save_hangs() -> None:
    store = PausedStore()
    async with site_server(store) as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits", 0, 5))
        counter = harness.server.counter("hits")
        store.pause()
        harness.server.on_frame(session, connection, [Report("hits", 0, 9, 1)], 10)
        await store.save_waits()
        states = []
        for harness.time in (SLOW_SAVE_S, SLOW_SAVE_S + 1):
            states.append((counter.published_answer.state, harness.server.health.behind_s))
        assert states == [(State.EXACT, 0.0), (State.DEGRADED, SLOW_SAVE_S + 1)]
        store.resume()


async def test_readers_see_the_last_saved_answer_while_a_save_hangs() -> None:
    store = PausedStore()
    async with site_server(store) as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits", 0, 5))
        connection.received.clear()
        store.pause()
        harness.server.on_frame(session, connection, [Report("hits", 0, 9, 1), Sync(1)], 10)
        await store.save_waits()
        harness.server.tick()
        counter = harness.server.counter("hits")
        assert (counter.published_answer.estimate, connection.received) == (5, [])
        store.resume()
        await harness.server.flush()
        assert (counter.published_answer.estimate, connection.received) == (9, [SyncAck(1)])


async def test_reports_during_a_hanging_save_are_merged_and_not_lost() -> None:
    store = PausedStore()
    async with site_server(store) as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits", 0, 0))
        store.pause()
        harness.server.on_frame(session, connection, [Report("hits", 0, 1, 1)], 10)
        await store.save_waits()
        for number in range(2, 5_000):
            harness.server.on_frame(session, connection, [Report("hits", 0, number, number)], 20)
        harness.server.on_frame(session, connection, [Sync(1), Sync(2)], 20)
        assert waiting_items(harness) == 3  # the count of the site, and each acknowledgement
        store.resume()
        await harness.server.flush()
        assert harness.server.counter("hits").coordinator.known_total == 4_999
        assert connection.received[-2:] == [SyncAck(1), SyncAck(2)]


async def test_connection_with_too_many_queued_items_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countless.server.storage.commit.MAX_QUEUED_ITEMS", 2_500)
    store = PausedStore()
    async with site_server(store, max_counters=1) as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits", 0, 0))
        store.pause()
        harness.server.on_frame(session, connection, [Report("hits", 0, 1, 1)], 10)
        await store.save_waits()
        requests: list[UpItem] = [Join("another", 0, 1), Sync(1)]
        for _ in range(10):
            harness.server.on_frame(session, connection, requests * 1_000, 10)
            assert waiting_items(harness) <= 2_503
        assert connection.close_reason == "too many items queued while the state cannot be saved"
        store.resume()


async def test_new_session_waits_for_the_save_that_hangs() -> None:
    store = PausedStore()
    async with site_server(store) as harness:
        session, connection = await harness.connect("a")
        store.pause()
        harness.server.on_frame(session, connection, [Join("hits", 0, 1)], 10)
        await store.save_waits()
        second = FakeConnection()
        opening = asyncio.create_task(harness.server.on_hello(second, Hello(VERSION, "b", 1)))
        await asyncio.sleep(0)
        assert not opening.done()
        store.resume()
        assert await opening is not None
        await harness.server.flush()
        assert len(second.received) == 1


class LoopStore(MemoryStore):
    """A save needs the event loop, as one over a network does."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.resumed = asyncio.Event(), asyncio.Event()
        self.loop_was_blocked = False
        self._loop = asyncio.get_running_loop()

    async def _wait(self) -> None:
        self.reached.set()
        await self.resumed.wait()

    def save(self, changes: Changes) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._wait(), self._loop).result(5)
        except TimeoutError:
            self.loop_was_blocked = True
        super().save(changes)


async def test_final_save_waits_for_the_one_before_without_blocking_the_loop() -> None:
    store = LoopStore()
    server = SiteServer(store, Settings())
    running = asyncio.create_task(server.run())
    server.create("hits", Config())
    request = asyncio.create_task(server.require_saved())
    await store.reached.wait()
    running.cancel()
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    store.resumed.set()
    await stopping
    await asyncio.wait_for(request, TIMEOUT_S)  # it is saved
    assert not store.loop_was_blocked
    assert list(load_counters(store)) == ["hits"]


class FencedStore(MemoryStore):
    def save(self, changes: Changes) -> None:
        raise Fenced("another coordinator owns this shard")


async def test_fenced_store_ends_the_pipeline_with_its_own_error() -> None:
    pipeline = CommitPipeline(FencedStore())
    pipeline.prune_tombstones(0)
    with pytest.raises(Fenced):
        await pipeline.run()


async def test_batch_whose_save_fails_is_saved_by_stop_when_run_is_cancelled() -> None:
    store = FullStore()
    async with site_server(store) as harness:
        leaving, first = await harness.connect("a")
        staying, second = await harness.connect("b")
        await harness.send(leaving, first, Join("hits", 0, 5))
        await harness.send(staying, second, Join("hits", 0, 3))
        store.full = True
        harness.server.on_frame(leaving, first, [Leave("hits", 0, 5)], 10)
        await eventually(lambda: harness.server.failing is not None)
        harness.server.on_frame(staying, second, [Report("hits", 0, 4, 4)], 10)  # saves the departed count again
        store.full = False  # and now the server stops: `run` is cancelled while it waits for its next attempt
    assert first.received[-1] == LeaveAck("hits")
    async with site_server(store) as harness:
        assert harness.server.counter("hits").coordinator.known_total == 9
        assert store.tombstones(SiteId("a", 1)) == [Tombstone(SiteId("a", 1), Key(COUNTER, "hits"), What.COUNT, 5)]


async def test_stop_gives_up_when_saves_go_on_failing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("countless.server.storage.commit.RETRY_S", 0)
    store = FullStore()
    async with asyncio.timeout(TIMEOUT_S), site_server(store) as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits", 0, 5))
        store.full = True
        connection.received.clear()
        harness.server.on_frame(session, connection, [Report("hits", 0, 9, 1), Sync(1)], 10)
        await eventually(lambda: harness.server.failing is not None)
        caplog.clear()
    assert caplog.messages == ["final save failed, unsaved changes dropped: attempts=5 error=database or disk is full"]
    assert connection.received == []
    assert harness.server.failing == "database or disk is full"
    store.full = False
    async with site_server(store) as harness:
        assert harness.server.counter("hits").coordinator.known_total == 5
