"""The log of a shard on a real JetStream: what is saved is read again, and only the last who took over can write."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext

from countless.core.coordinator import PersistentState
from countless.core.messages import SiteId
from countless.server.cluster import log_store as nats_store
from countless.server.cluster.broker import NoBroker, connect, open_bucket, open_log
from countless.server.cluster.log_store import STREAM, BrokerAway, Deposed, NatsStore
from countless.server.cluster.records import Record
from countless.server.storage.base import Changes, Config, CounterFields, SiteCounts, StoreError
from support.nats import Node, free_ports, node

pytestmark = pytest.mark.slow

WEB, OLD = SiteId("web", 2**62), SiteId("web", 1)
CONFIG = Config(alpha=0.02, scheme="dithered")
SAVED = Changes({"hits": CounterFields(7, 2**80, 2**70)}, {"hits": {WEB: 2**90, OLD: 4}}, {"hits": CONFIG})


def first(number: int) -> Changes:
    return Changes({"hits": CounterFields(number, number, 0)}, configs={"hits": CONFIG})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(tmp_path_factory.mktemp("broker")) as server:
        yield server


def play(broker: Node, story: Callable[[JetStreamContext], Awaitable[None]]) -> None:
    """Every story begins with an empty log."""

    async def run() -> None:
        client = await connect(broker.url)
        try:
            stream = client.jetstream()
            await open_log(stream)
            await stream.purge_stream(STREAM)
            await story(stream)
        finally:
            await client.close()

    asyncio.run(run())


async def taken(stream: JetStreamContext, session: str, shard: int = 0, leased: bool = True) -> NatsStore:
    store = NatsStore(stream, shard, session, lambda: leased)
    await store.take_over()
    return store


async def save(store: NatsStore, changes: Changes) -> None:
    await asyncio.to_thread(store.save, changes)


def test_what_is_saved_is_there_for_whoever_takes_over(broker: Node) -> None:
    async def story(stream: JetStreamContext) -> None:
        one = await taken(stream, "one")
        await save(one, SAVED)
        known: SiteCounts = {"hits": {WEB: 2**90 + 1, OLD: None}}
        await save(one, Changes({"other": CounterFields(1, 12.5, 0)}, known, {"other": Config()}, {("hits", OLD): 5}))
        await save(await taken(stream, "elsewhere", shard=1), first(1))
        two = await taken(stream, "two")
        saved_state = PersistentState(7, 2**80, 2**70, ((WEB, 2**90 + 1),))
        expected = {"hits": (CONFIG, saved_state), "other": (Config(), PersistentState(1, 12.5, 0, ()))}
        assert two.load() == one.load() == expected
        assert two.tombstones(OLD) == (("hits", 5),)
        await save(two, Changes(deleted=["hits"]))
        assert list((await taken(stream, "three")).load()) == ["other"]

    play(broker, story)


def test_who_was_there_before_can_write_nothing_more(broker: Node) -> None:
    async def story(stream: JetStreamContext) -> None:
        one = await taken(stream, "one")
        await save(one, SAVED)
        two = await taken(stream, "two")
        for _ in range(2):
            with pytest.raises(Deposed):
                await save(one, Changes({"hits": CounterFields(8, 2**81, 0)}))
        await save(two, Changes(counts={"hits": {OLD: 6}}))
        assert (await taken(stream, "three")).load() == two.load()

    play(broker, story)


def test_taking_over_while_the_owner_writes_loses_nothing_of_what_it_could_write(
    broker: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This owner never tires, as one without a lease would: the other may have to read on many times."""
    monkeypatch.setattr("countless.server.cluster.log_store._ATTEMPTS", 100_000)

    async def story(stream: JetStreamContext) -> None:
        one = await taken(stream, "one")
        written = 0

        async def write() -> None:
            nonlocal written
            while True:
                await save(one, first(written + 1))
                written += 1

        writing = asyncio.create_task(write())
        while written < 5:
            await asyncio.sleep(0)
        two = await taken(stream, "two")
        with pytest.raises(Deposed):
            await writing
        assert two.load()["hits"][1].round == written

    play(broker, story)


def test_a_confirmation_that_was_lost_does_not_depose_anybody(broker: Node) -> None:
    async def story(stream: JetStreamContext) -> None:
        store = await taken(stream, "one")
        publish = stream.publish

        async def deaf(*arguments: Any, **options: Any) -> None:
            await publish(*arguments, **options)
            raise NatsTimeout

        changes = first(1)
        stream.publish = deaf  # type: ignore[method-assign, assignment]
        with pytest.raises(BrokerAway):
            await save(store, changes)
        assert store.load() == {}
        stream.publish = publish  # type: ignore[method-assign]
        await save(store, changes)
        await save(store, Changes(counts={"hits": {WEB: 1}}))
        assert (
            (await taken(stream, "two")).load()
            == store.load()
            == {"hits": (CONFIG, PersistentState(1, 1, 0, ((WEB, 1),)))}
        )

    play(broker, story)


def test_without_a_lease_a_save_is_not_good_enough(broker: Node) -> None:
    async def story(stream: JetStreamContext) -> None:
        leases = [False, True]
        store = NatsStore(stream, 0, "one", lambda: leases.pop(0))
        await store.take_over()
        changes = first(1)
        with pytest.raises(BrokerAway, match="lease"):
            await save(store, changes)
        await save(store, changes)  # it has been renewed
        assert (await taken(stream, "two")).load() == store.load()

    play(broker, story)


def test_large_records_come_in_parts_and_old_ones_are_purged(broker: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_store, "_PART", 100)
    monkeypatch.setattr(nats_store, "_PURGE_AFTER", 40)

    async def story(stream: JetStreamContext) -> None:
        one = await taken(stream, "one")
        for number in range(30):
            lives: SiteCounts = {"hits": {SiteId(f"site {number} {each}", 1): each for each in range(10)}}
            changes = Changes(
                {"hits": CounterFields(number, number, 0)}, lives, {"hits": CONFIG}, {("hits", SiteId("x", number)): 1}
            )
            await save(one, changes)
        messages = (await stream.stream_info(STREAM)).state.messages
        assert messages < 200  # of about 400
        two = await taken(stream, "two")
        assert two.snapshot() == one.snapshot()
        assert len(two.load()["hits"][1].known) == 300
        part = Record("two", 99, 0, 2, b"never complete")  # it died in the middle
        await two._append(part)
        assert (await taken(stream, "three")).snapshot() == one.snapshot()

    play(broker, story)


def test_when_a_life_ended_is_in_the_log_and_so_is_what_was_dropped(
    broker: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stream: JetStreamContext) -> None:
        clock = [1000.0]
        one = NatsStore(stream, 0, "one", lambda: True, lambda: clock[0])
        await one.take_over()
        await save(one, SAVED)
        await save(one, Changes(counts={"hits": {OLD: None}}, tombstones={("hits", OLD): 4}))
        clock[0] = 2000.0
        await save(one, Changes(counts={"hits": {WEB: None}}, tombstones={("hits", WEB): 2**90}))
        two = await taken(stream, "two")  # years later, by its clock: what is remembered does not become younger
        assert two.snapshot().keys() == {0, 1000, 2000}
        await save(two, Changes(prune_before=1500))
        for each in (two, await taken(stream, "three")):
            assert (each.tombstones(OLD), each.tombstones(WEB)) == ((), (("hits", 2**90),))
            assert each.tombstone_horizon() == 1500
        monkeypatch.setattr(nats_store, "_PURGE_AFTER", 0)  # everything is written as one record
        four = await taken(stream, "four")
        await save(four, Changes({"hits": CounterFields(9, 2**81, 2**91)}))
        five = await taken(stream, "five")
        assert five.snapshot() == four.snapshot()
        assert five.tombstone_horizon() == 1500

    play(broker, story)


def test_the_stream_and_the_bucket_can_be_opened_twice(broker: Node) -> None:
    async def story(stream: JetStreamContext) -> None:
        await open_log(stream)
        first, again = await open_bucket(stream), await open_bucket(stream)
        _, revision = await first.get("key")
        assert await first.put("key", b"value", revision)
        assert not await again.put("key", b"other", revision)
        assert (await again.get("key"))[0] == b"value"

    play(broker, story)


def test_no_broker_is_an_error_with_its_address_and_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countless.server.cluster.broker._PATIENCE", 0.3)
    with pytest.raises(NoBroker, match=r"no broker at nats://127\.0\.0\.1:\d+: ") as caught:
        asyncio.run(connect(f"nats://me:secret@127.0.0.1:{free_ports(1)[0]}"))
    assert "secret" not in str(caught.value)


def test_the_log_of_another_program_is_refused(broker: Node) -> None:
    async def story(stream: JetStreamContext) -> None:
        await stream.publish("countless.log.0", b"something else")
        with pytest.raises(StoreError, match="not written"):
            await taken(stream, "one")

    play(broker, story)
