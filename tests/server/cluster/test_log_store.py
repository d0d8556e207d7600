"""The log of a shard on a real JetStream: saves are read back, and only the last owner can write."""

import asyncio
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext

from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import SavedSite
from countless.core.coordinator import PersistentState
from countless.core.messages import SiteId
from countless.core.windows.rule import WindowRule
from countless.server.cluster import log_store
from countless.server.cluster.broker import LOG_STREAM, open_log
from countless.server.cluster.log_store import BrokerUnavailable, Fenced, LogStore
from countless.server.cluster.records import Record
from countless.server.storage.base import (
    BudgetFields,
    Changes,
    Config,
    CounterFields,
    PeriodFields,
    SavedBudget,
    SavedPeriod,
    SiteCounts,
    StoreError,
    WindowFields,
    WindowKey,
)
from countless.wire.incarnations import second_of
from countless.wire.nats_subjects import log_subject
from support.tombstones import final, shown
from support.waiting import eventually

pytestmark = pytest.mark.slow

WEB, OLD = SiteId("web", 2**62), SiteId("web", 1)
CONFIG = Config(alpha=0.02, scheme="dithered")
SAVED = Changes({"hits": CounterFields(7, 2**80, 2**70)}, {"hits": {WEB: 2**90, OLD: 4}}, {"hits": CONFIG})


def new_counter(number: int) -> Changes:
    return Changes({"hits": CounterFields(number, number, 0)}, configs={"hits": CONFIG})


@pytest.fixture
async def jetstream(client: Client) -> JetStreamContext:
    """With an empty log."""
    jetstream = client.jetstream()
    await open_log(jetstream)
    await jetstream.purge_stream(LOG_STREAM)
    return jetstream


async def take_over(jetstream: JetStreamContext, ownership_id: str, shard: int = 0) -> LogStore:
    store = LogStore(jetstream, shard, ownership_id, lambda: True)
    await store.take_over()
    return store


async def save(store: LogStore, changes: Changes) -> None:
    await asyncio.to_thread(store.save, changes)


async def test_saves_are_read_by_the_next_owner(jetstream: JetStreamContext) -> None:
    one = await take_over(jetstream, "one")
    await save(one, SAVED)
    counts: SiteCounts = {"hits": {WEB: 2**90 + 1, OLD: None}}
    fields = {"other": CounterFields(1, 12.5, 0)}
    await save(one, Changes(fields, counts, {"other": Config()}, [final("hits", OLD, 5)]))
    await save(await take_over(jetstream, "elsewhere", shard=1), new_counter(1))
    two = await take_over(jetstream, "two")
    saved_state = PersistentState(7, 2**80, 2**70, ((WEB, 2**90 + 1),))
    expected = {"hits": (CONFIG, saved_state), "other": (Config(), PersistentState(1, 12.5, 0, ()))}
    assert two.load() == one.load() == expected
    assert shown(two.tombstones(OLD)) == (("hits", 5),)
    await save(two, Changes(deleted=["hits"]))
    assert list((await take_over(jetstream, "three")).load()) == ["other"]


async def test_budgets_are_read_by_the_next_owner(jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch) -> None:
    budget, fields = BudgetFields(BudgetRule(2**62, "day", slack=0.25), 7), PeriodFields(2**70, 2**71, 1, 3, True)
    old, tokens = BudgetId("tokens", 7), BudgetId("tokens", 8)
    one = await take_over(jetstream, "one")
    periods = {old: fields, tokens: fields}
    sites: dict[SiteId, SavedSite | None] = {WEB: SavedSite(5), OLD: SavedSite(2**62, given_up=True)}
    budgets = {"tokens": budget, "other": budget}
    await save(one, Changes(budgets=budgets, periods=periods, budget_sites={old: sites, tokens: sites}))
    left = Changes(budget_sites={tokens: {WEB: None}}, closed_periods=[old], deleted_budgets=["other"])
    await save(one, left)
    period = SavedPeriod(fields, {OLD: SavedSite(2**62, given_up=True)})
    assert one.load_budgets() == {"tokens": SavedBudget(budget, {8: period})}
    monkeypatch.setattr(LogStore, "compact_after_messages", 0)
    two = await take_over(jetstream, "two")
    assert two.load_budgets() == one.load_budgets()
    await save(two, new_counter(1))  # writes the whole state, and purges older records
    assert (await take_over(jetstream, "three")).load_budgets() == one.load_budgets()


async def test_windows_are_read_by_the_next_owner(jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch) -> None:
    name, config = "hits@day,Europe/Berlin,6:5", Config(windows=WindowRule("day", "Europe/Berlin", 6, 2**100, 3))
    opened = Changes({"hits": CounterFields(4, 2.5, 2**70), name: CounterFields(1, 1, 0)}, {name: {WEB: 1}})
    opened.configs = {"hits": config, name: CONFIG}
    opened.windows = {
        WindowKey("hits", 4): WindowFields(0, 2**80, 1, 5),
        WindowKey("hits", 5): WindowFields(2**70, None),
    }
    one = await take_over(jetstream, "one")
    await save(one, opened)
    two = await take_over(jetstream, "two")
    assert two.load() == one.load()
    assert two.load()["hits"][0] == config
    assert list(two.load_windows()) == [*opened.windows.items()]
    closed = {WindowKey("hits", 4): None, WindowKey("hits", 5): WindowFields(0, 1)}
    await save(two, Changes(windows=closed, closed=[name]))
    monkeypatch.setattr(LogStore, "compact_after_messages", 0)
    three = await take_over(jetstream, "three")
    await save(three, new_counter(1))  # writes the whole state, and purges older records
    four = await take_over(jetstream, "four")
    assert four.load().keys() == {"hits"}
    assert list(four.load_windows()) == [(WindowKey("hits", 5), WindowFields(0, 1))]


async def test_previous_owner_is_fenced(jetstream: JetStreamContext) -> None:
    one = await take_over(jetstream, "one")
    await save(one, SAVED)
    two = await take_over(jetstream, "two")
    for _ in range(2):
        with pytest.raises(Fenced):
            await save(one, Changes({"hits": CounterFields(8, 2**81, 0)}))
    await save(two, Changes(counts={"hits": {OLD: 6}}))
    assert (await take_over(jetstream, "three")).load() == two.load()


async def test_record_of_another_owner_with_the_same_number_confirms_nothing(jetstream: JetStreamContext) -> None:
    one = await take_over(jetstream, "one")
    await save(one, SAVED)
    two = await take_over(jetstream, "two")
    for count in (6, 7):
        await save(two, Changes(counts={"hits": {OLD: count}}))
    with pytest.raises(Fenced):  # its third record, as the last one of the other owner
        await save(one, Changes(counts={"hits": {OLD: 8}}))


async def test_take_over_while_the_owner_writes_loses_no_confirmed_save(
    jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This owner never stops, as if it ignored its lease: the new owner may have to read on many times."""
    monkeypatch.setattr(log_store, "_MAX_TAKE_OVER_ATTEMPTS", 100_000)
    one = await take_over(jetstream, "one")
    written = 0

    async def write() -> None:
        nonlocal written
        while True:
            await save(one, new_counter(written + 1))
            written += 1

    writing = asyncio.create_task(write())
    await eventually(lambda: written >= 5)
    two = await take_over(jetstream, "two")
    with pytest.raises(Fenced):
        await writing
    assert two.load()["hits"][1].round == written


async def test_lost_confirmation_does_not_fence_the_owner(jetstream: JetStreamContext) -> None:
    store = await take_over(jetstream, "one")
    publish = jetstream.publish

    async def publish_and_lose_confirmation(*arguments: Any, **options: Any) -> None:
        await publish(*arguments, **options)
        raise NatsTimeout

    changes = new_counter(1)
    jetstream.publish = publish_and_lose_confirmation  # type: ignore[method-assign, assignment]
    with pytest.raises(BrokerUnavailable):
        await save(store, changes)
    assert store.load() == {}
    jetstream.publish = publish  # type: ignore[method-assign]
    await save(store, changes)
    await save(store, Changes(counts={"hits": {WEB: 1}}))
    expected = {"hits": (CONFIG, PersistentState(1, 1, 0, ((WEB, 1),)))}
    assert (await take_over(jetstream, "two")).load() == store.load() == expected


async def test_take_over_without_a_lease_fails_and_the_owner_can_go_on(jetstream: JetStreamContext) -> None:
    owner = await take_over(jetstream, "one")
    with pytest.raises(BrokerUnavailable, match="lease"):
        await LogStore(jetstream, 0, "two", lambda: False).take_over()
    await save(owner, SAVED)


async def test_save_without_a_lease_fails_and_succeeds_after_renewal(jetstream: JetStreamContext) -> None:
    leases = [True, False, True]
    store = LogStore(jetstream, 0, "one", lambda: leases.pop(0))
    await store.take_over()
    changes = new_counter(1)
    with pytest.raises(BrokerUnavailable, match="lease"):
        await save(store, changes)
    await save(store, changes)
    assert (await take_over(jetstream, "two")).load() == store.load()


async def test_large_records_have_parts_and_old_records_are_purged(
    jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogStore, "part_bytes", 100)
    monkeypatch.setattr(LogStore, "compact_after_messages", 40)
    one = await take_over(jetstream, "one")
    for number in range(30):
        counts: SiteCounts = {"hits": {SiteId(f"site {number} {each}", 1): each for each in range(10)}}
        fields = {"hits": CounterFields(number, number, 0)}
        await save(one, Changes(fields, counts, {"hits": CONFIG}, [final("hits", SiteId("x", number), 1)]))
    messages = (await jetstream.stream_info(LOG_STREAM)).state.messages
    assert messages < 200  # of about 400
    two = await take_over(jetstream, "two")
    assert two.debug_state() == one.debug_state()
    assert len(two.load()["hits"][1].known) == 300
    incomplete = Record("two", 99, 0, 2, b"its writer stopped before the second part")
    await jetstream.publish(log_subject(0), msgspec.msgpack.encode(incomplete))
    assert (await take_over(jetstream, "three")).debug_state() == one.debug_state()


async def test_age_of_tombstones_and_their_horizon_are_in_the_log(
    jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    one = LogStore(jetstream, 0, "one", lambda: True, lambda: clock[0])
    await one.take_over()
    await save(one, SAVED)
    await save(one, Changes(counts={"hits": {OLD: None}}, tombstones=[final("hits", OLD, 4)]))
    clock[0] = 2000.0
    await save(one, Changes(counts={"hits": {WEB: None}}, tombstones=[final("hits", WEB, 2**90)]))
    two = await take_over(jetstream, "two")  # decades later by its clock: tombstones keep their age
    assert two.debug_state().keys() == {0, 1000, 2000}
    await save(two, Changes(prune_before=1500))
    for each in (two, await take_over(jetstream, "three")):
        assert (shown(each.tombstones(OLD)), shown(each.tombstones(WEB))) == ((), (("hits", 2**90),))
        assert each.tombstone_horizon() == second_of(OLD.incarnation) + 1
    monkeypatch.setattr(LogStore, "compact_after_messages", 0)
    four = await take_over(jetstream, "four")
    await save(four, Changes({"hits": CounterFields(9, 2**81, 2**91)}))
    five = await take_over(jetstream, "five")
    assert five.debug_state() == four.debug_state()
    assert five.tombstone_horizon() == second_of(OLD.incarnation) + 1


async def test_log_of_another_program_is_refused(jetstream: JetStreamContext) -> None:
    await jetstream.publish(log_subject(0), b"something else")
    with pytest.raises(StoreError, match="not written"):
        await take_over(jetstream, "one")
