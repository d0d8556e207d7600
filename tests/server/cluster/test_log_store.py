"""The log of a shard on a real JetStream: saves are read back, and only the last owner can write."""

import asyncio
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext

from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import SavedSite
from countless.core.coordinator import PersistentCounter
from countless.core.messages import SiteId
from countless.server.cluster import log_store
from countless.server.cluster.broker import LOG_STREAM, open_log
from countless.server.cluster.log_store import BrokerUnavailable, Fenced, LogStore
from countless.server.cluster.records import Record
from countless.server.kinds.budget_periods import BudgetFields, PeriodFields, SavedBudget, SavedPeriod
from countless.server.kinds.counter import CounterFields
from countless.server.settings import Config
from countless.server.storage.base import StoreError
from countless.server.storage.rows import Changes, Dropped, Rows, Tombstone, What, alone, row_of
from countless.wire.incarnations import second_of
from countless.wire.keys import ALL, BUDGET, COUNTER, Key
from countless.wire.nats_subjects import log_subject
from support.saved import counter_changes, counter_rows, load_budgets, load_counters
from support.waiting import eventually

pytestmark = pytest.mark.slow

WEB, OLD = SiteId("web", 2**62), SiteId("web", 1)
CONFIG = Config(alpha=0.02, scheme="dithered")
HITS = Key(COUNTER, "hits")
SAVED = counter_changes("hits", CONFIG, CounterFields(7, 2**80, 2**70), {WEB: 2**90, OLD: 4})


def new_counter(number: int) -> Changes:
    return counter_changes("hits", CONFIG, CounterFields(number, number, 0))


def counted(site_id: SiteId, n: int | None) -> Changes:
    return counter_changes("hits", counts={site_id: n})


def count(site_id: SiteId, n: int) -> Tombstone:
    return Tombstone(site_id, HITS, What.COUNT, n)


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
    changes = counter_changes("hits", counts={WEB: 2**90 + 1, OLD: None})
    changes.rows[Key(COUNTER, "other")] = counter_rows(Config(), CounterFields(1, 12.5, 0))
    changes.tombstones = [count(OLD, 5)]
    await save(one, changes)
    await save(await take_over(jetstream, "elsewhere", shard=1), new_counter(1))
    two = await take_over(jetstream, "two")
    saved_state = PersistentCounter(7, 2**80, 2**70, ((WEB, 2**90 + 1),))
    expected = {"hits": (CONFIG, saved_state), "other": (Config(), PersistentCounter(1, 12.5, 0, ()))}
    assert load_counters(two) == load_counters(one) == expected
    assert two.tombstones(OLD) == [count(OLD, 5)]
    await save(two, Changes(dropped=[Dropped(HITS)]))
    assert list(load_counters(await take_over(jetstream, "three"))) == ["other"]


async def test_rows_of_any_kind_are_read_by_the_next_owner_also_after_a_compaction(
    jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, budget = await take_over(jetstream, "one"), Key(BUDGET, "tokens")
    rule = BudgetFields(BudgetRule(2**62, "day", slack=0.25), 7)
    fields, holder = PeriodFields(2**70, 2**71, 1, True, ((7.5, 2**71),)), SavedSite(2**68, 2**67, 2**66, True, 2**65)
    holders = [row_of(WEB, SavedSite(5)), row_of(OLD, holder)]
    rows: Rows = {budget: {"rule": alone(rule)}, Key(BUDGET, "other"): {"rule": alone(rule)}}
    for period in (7, 8):
        rows[budget._replace(period=period)] = {"period": alone(fields), "holder": holders}
    await save(one, Changes(rows))
    left: Rows = {budget._replace(period=8): {"holder": [row_of(WEB, None)]}}
    await save(one, Changes(left, [Dropped(budget._replace(period=7)), Dropped(Key(BUDGET, "other", "", ALL))]))
    assert load_budgets(one) == {"tokens": SavedBudget(rule, {8: SavedPeriod(fields, {OLD: holder})})}
    monkeypatch.setattr(LogStore, "compact_after_messages", 0)
    two = await take_over(jetstream, "two")
    assert load_budgets(two) == load_budgets(one)
    await save(two, new_counter(1))  # writes the whole state, and purges older records
    assert load_budgets(await take_over(jetstream, "three")) == load_budgets(one)


async def test_previous_owner_is_fenced(jetstream: JetStreamContext) -> None:
    one = await take_over(jetstream, "one")
    await save(one, SAVED)
    two = await take_over(jetstream, "two")
    for _ in range(2):
        with pytest.raises(Fenced):
            await save(one, counter_changes("hits", fields=CounterFields(8, 2**81, 0)))
    await save(two, counted(OLD, 6))
    assert load_counters(await take_over(jetstream, "three")) == load_counters(two)


async def test_record_of_another_owner_with_the_same_number_confirms_nothing(jetstream: JetStreamContext) -> None:
    one = await take_over(jetstream, "one")
    await save(one, SAVED)
    two = await take_over(jetstream, "two")
    for number in (6, 7):
        await save(two, counted(OLD, number))
    with pytest.raises(Fenced):  # its third record, as the last one of the other owner
        await save(one, counted(OLD, 8))


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
    assert load_counters(two)["hits"][1].round == written


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
    assert load_counters(store) == {}
    jetstream.publish = publish  # type: ignore[method-assign]
    await save(store, changes)
    await save(store, counted(WEB, 1))
    expected = {"hits": (CONFIG, PersistentCounter(1, 1, 0, ((WEB, 1),)))}
    assert load_counters(await take_over(jetstream, "two")) == load_counters(store) == expected


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
    assert load_counters(await take_over(jetstream, "two")) == load_counters(store)


async def test_large_records_have_parts_and_old_records_are_purged(
    jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogStore, "part_bytes", 100)
    monkeypatch.setattr(LogStore, "compact_after_messages", 40)
    one = await take_over(jetstream, "one")
    for number in range(30):
        counts = {SiteId(f"site {number} {each}", 1): each for each in range(10)}
        changes = counter_changes("hits", CONFIG, CounterFields(number, number, 0), counts)
        changes.tombstones = [count(SiteId("x", number), 1)]
        await save(one, changes)
    messages = (await jetstream.stream_info(LOG_STREAM)).state.messages
    assert messages < 200  # of about 400
    two = await take_over(jetstream, "two")
    assert two.debug_state() == one.debug_state()
    assert len(load_counters(two)["hits"][1].known) == 300
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
    await save(one, Changes(counted(OLD, None).rows, tombstones=[count(OLD, 4)]))
    clock[0] = 2000.0
    await save(one, Changes(counted(WEB, None).rows, tombstones=[count(WEB, 2**90)]))
    two = await take_over(jetstream, "two")  # decades later by its clock: tombstones keep their age
    assert two.debug_state().keys() == {0, 1000, 2000}
    await save(two, Changes(prune_before=1500))
    for each in (two, await take_over(jetstream, "three")):
        assert (each.tombstones(OLD), each.tombstones(WEB)) == ([], [count(WEB, 2**90)])
        assert each.tombstone_horizon() == second_of(OLD.incarnation) + 1
    monkeypatch.setattr(LogStore, "compact_after_messages", 0)
    four = await take_over(jetstream, "four")
    await save(four, counter_changes("hits", fields=CounterFields(9, 2**81, 2**91)))
    five = await take_over(jetstream, "five")
    assert five.debug_state() == four.debug_state()
    assert five.tombstone_horizon() == second_of(OLD.incarnation) + 1


async def test_log_of_another_program_is_refused(jetstream: JetStreamContext) -> None:
    await jetstream.publish(log_subject(0), b"something else")
    with pytest.raises(StoreError, match="not written"):
        await take_over(jetstream, "one")
