"""Every state store: what is saved is loaded, completely and in the order of the saves, whatever it is of."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core.messages import SiteId
from countless.core.periods.window import WindowRule
from countless.server.cluster.records import Body, decode_body, split
from countless.server.kinds.counter import CounterFields
from countless.server.settings import Config
from countless.server.storage import journal, sqlite_store
from countless.server.storage.base import StoreError
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import (
    Changes,
    Dropped,
    KeyRows,
    Place,
    Row,
    Rows,
    StateStore,
    Tombstone,
    What,
    alone,
    as_type,
    decode,
    encode,
    row_of,
    value_of,
)
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.incarnations import first_of, second_of
from countless.wire.keys import ALL, COUNTER, FAMILY, Key
from support.saved import fast_directory

WEB, OLD, NEWER = SiteId("web", 2**62), SiteId("web", 1), SiteId("web", first_of(700))
HITS, MISSES = Key(COUNTER, "hits"), Key(COUNTER, "misses")
KINDS = ("counter", "family")
LABELS: list[Row] = [("", 0, "", 2**70), ("", 0, "é", 1)]


class Clock:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def in_sqlite(clock: Clock) -> StateStore:
    return SqliteStore(None, clock)


def in_memory(clock: Clock) -> StateStore:
    return MemoryStore(clock)


class Log(MemoryStore):
    """As another coordinator reads it: all saves, one after another."""

    def save(self, changes: Changes) -> None:
        (record,) = split("owner", 1, Body([(int(self._wall_clock()), changes)]), 1 << 30)
        ((second, read),) = decode_body(record.body).saves
        self.save_at(read, second)


every_store = pytest.mark.parametrize("create", [in_sqlite, in_memory, Log])
Create = Callable[[Clock], StateStore]


def loaded(store: StateStore) -> list[tuple[Key, KeyRows]]:
    """Values as JSON has them; the rows of a key in the order of their places."""
    rows = {key: {what: sorted(each, key=_place) for what, each in rows.items()} for key, rows in _loaded(store)}
    return [*decode(encode(Changes(rows))).rows.items()]


def _loaded(store: StateStore) -> list[tuple[Key, KeyRows]]:
    return [each for kind in KINDS for each in store.load(kind)]


def _place(row: Row) -> Place:
    return row[:3]


def count(site_id: SiteId, key: Key, value: int) -> Tombstone:
    return Tombstone(site_id, key, What.COUNT, value)


@every_store
def test_rows_are_loaded_as_saved_in_the_order_of_their_keys(create: Create) -> None:
    store, config = create(Clock()), Config(alpha=0.02, scheme="dithered", windows=WindowRule("day", floor=2**70))
    fields, window = CounterFields(7, 2**80 + 1, 2**70), Key(COUNTER, "hits", "day", 5)
    store.save(Changes({window: {"window": alone(5)}, HITS: {"spec": alone(config)}}))
    store.save(Changes({HITS: {"state": alone(fields), "site": [row_of(WEB, 2**90), row_of(OLD, 4)]}}))
    store.save(Changes({HITS: {"site": [row_of(WEB, 2**90 + 1), row_of(OLD, None)]}}))
    store.save(Changes({Key(FAMILY, "a"): {"label": LABELS}}))
    for _ in range(2):
        (key, rows), (other, windows) = store.load(COUNTER)
        assert (key, other, windows["window"]) == (HITS, window, alone(5))
        assert value_of(key, rows, "spec", Config) == config
        assert value_of(key, rows, "state", CounterFields) == fields
        assert rows["site"] == [row_of(WEB, 2**90 + 1)]
        assert list(store.load(FAMILY)) == [(Key(FAMILY, "a"), {"label": LABELS})]


class Shorter(NamedTuple):
    round: int
    total: int


class Longer(NamedTuple):
    """With a field that a later version has added."""

    round: int
    total: int
    seen: int = 9


@every_store
def test_value_that_an_earlier_version_has_saved_has_the_default_of_a_new_field(create: Create) -> None:
    store = create(Clock())
    store.save(Changes({HITS: {"state": alone(Shorter(1, 2**70))}}))
    ((_, rows),) = loaded(store)
    assert as_type(rows["state"][0][3], Longer) == Longer(1, 2**70, 9)


@every_store
def test_row_that_cannot_be_used_is_refused_by_the_name_of_its_object(create: Create) -> None:
    store = create(Clock())
    rule = {"per": "day", "tz": "Europe/Nowhere"}
    store.save(Changes({HITS: {"spec": alone({"windows": rule}), "state": alone([1, "many", 0])}}))
    ((key, rows),) = store.load(COUNTER)
    with pytest.raises(StoreError, match="the spec of counter 'hits' cannot be used here: tz = 'Europe/Nowhere'"):
        value_of(key, rows, "spec", Config)
    with pytest.raises(StoreError, match=r"the state of counter 'hits' cannot be used here: .*got `str`"):
        value_of(key, rows, "state", CounterFields)
    with pytest.raises(StoreError, match="the rule of counter 'hits' cannot be used here"):
        value_of(key, rows, "rule", int)


@every_store
def test_what_is_dropped_leaves_nothing_and_may_be_saved_again_in_the_same_save(create: Create) -> None:
    store, window, other = create(Clock()), Key(COUNTER, "hits", "hour", 5), Key(COUNTER, "hits", "day", 5)
    left: list[Row] = [("", 0, "a", 7), ("web", 2, "a", 4)]
    rows: KeyRows = {"site": [row_of(OLD, 5)], "count": [("", 0, "a", 7), ("web", 1, "a", 3), ("web", 2, "a", 4)]}
    everything: Rows = dict.fromkeys((HITS, window, window._replace(period=6), other, MISSES), rows)
    store.save(Changes(everything, tombstones=[count(OLD, HITS, 3), count(OLD, window, 4)]))
    store.save(Changes({HITS: {"site": [row_of(NEWER, 2)]}}, [Dropped(HITS)]))
    store.save(Changes(dropped=[Dropped(Key(COUNTER, "hits", "hour", ALL)), Dropped(MISSES, OLD)]))
    assert loaded(store) == [(HITS, {"site": [row_of(NEWER, 2)]}), (other, rows), (MISSES, {"count": left})]
    assert store.tombstones(OLD) == [count(OLD, HITS, 3), count(OLD, window, 4)]
    store.save(Changes(forgotten=[HITS], tombstones=[count(OLD, MISSES, 1)]))
    assert store.tombstones(OLD) == [count(OLD, window, 4), count(OLD, MISSES, 1)]


@every_store
def test_pruning_drops_old_tombstones_and_raises_the_horizon(create: Create) -> None:
    clock = Clock()
    store = create(clock)
    store.save(Changes(tombstones=[count(OLD, HITS, 3)]))
    clock.seconds = 2000.0
    store.save(Changes(tombstones=[count(NEWER, HITS, 2**90)]))
    store.save(Changes(prune_before=900))
    assert (store.tombstone_horizon(), store.tombstones(OLD)) == (0, [count(OLD, HITS, 3)])
    store.save(Changes(prune_before=1500))
    assert (store.tombstone_horizon(), store.tombstones(OLD)) == (1, [])
    assert store.tombstones(NEWER) == [count(NEWER, HITS, 2**90)]
    store.save(Changes(prune_before=2500))
    assert (store.tombstone_horizon(), store.tombstones(NEWER)) == (701, [])
    clock.seconds = 100.0
    store.save(Changes(tombstones=[count(OLD, HITS, 3)]))
    store.save(Changes(prune_before=200))
    assert (store.tombstone_horizon(), store.tombstones(OLD)) == (701, [])  # it does not fall when the clock does


@every_store
def test_wrong_clock_of_one_process_does_not_move_the_horizon_ahead_of_all_others(create: Create) -> None:
    store = create(Clock())
    store.save(Changes(tombstones=[count(WEB, HITS, 4), count(NEWER, HITS, 1)]))
    store.save(Changes(prune_before=2000))
    assert (store.tombstone_horizon(), store.tombstones(WEB)) == (701, [count(WEB, HITS, 4)])
    store.save(Changes(prune_before=second_of(WEB.incarnation) + 1))
    assert (store.tombstone_horizon(), store.tombstones(WEB)) == (second_of(WEB.incarnation) + 1, [])


@every_store
def test_tombstones_of_an_incarnation_are_dropped_together(create: Create) -> None:
    clock = Clock()
    store = create(clock)
    labels = [Tombstone(OLD, Key(FAMILY, "f"), What.LABEL, 2, label) for label in ("", "a")]
    store.save(Changes(tombstones=[count(OLD, HITS, 3), *labels]))
    clock.seconds = 2000.0
    left = Tombstone(OLD, Key(FAMILY, "g"), What.LEFT)
    store.save(Changes(tombstones=[left, Tombstone(OLD, Key(COUNTER, "w", "hour", ALL), What.WATERMARK, 7)]))
    store.save(Changes(prune_before=1500))
    watermark = Tombstone(OLD, Key(COUNTER, "w", "hour", ALL), What.WATERMARK, 7)
    assert (store.tombstone_horizon(), store.tombstones(OLD)) == (0, [count(OLD, HITS, 3), watermark, *labels, left])


# Any changes

names = st.sampled_from("ab")
sites = st.builds(SiteId, st.sampled_from("xy"), st.integers(1, 2), st.just(""))
calendars = st.sampled_from(["", "hour", "day,Europe/Berlin,6"])
keys = st.builds(Key, st.sampled_from(KINDS), names, calendars, st.integers(0, 2))
places = st.just(("", 0, "")) | st.builds(lambda each, label: (*each[:2], label), sites, st.sampled_from(["", "l"]))
values = st.integers(-(2**70), 2**70) | st.floats(0, 9) | st.lists(st.integers(0, 2**70), max_size=2)
some_rows = st.dictionaries(places, st.none() | values, max_size=4).map(
    lambda found: [(*place, value) for place, value in found.items()]
)
key_rows = st.dictionaries(st.sampled_from(["state", "site"]), some_rows, max_size=2)
whole_or_sites = st.builds(Dropped, keys, st.one_of(st.none(), sites))
dropped = whole_or_sites | keys.map(lambda key: Dropped(key._replace(period=ALL)))
tombstones = st.builds(Tombstone, sites, keys, st.sampled_from(What), st.integers(0, 2**70), st.sampled_from(["", "l"]))
any_changes = st.builds(
    Changes,
    st.dictionaries(keys, key_rows, max_size=4),
    st.lists(dropped, max_size=2),
    st.lists(keys, max_size=1),
    st.lists(tombstones, max_size=3),
    st.none() | st.integers(995, 1010),
)


def state(store: StateStore) -> Any:
    ids = [SiteId(site, incarnation) for site in "xy" for incarnation in (1, 2)]
    return loaded(store), [store.tombstones(site_id) for site_id in ids], store.tombstone_horizon()


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(any_changes, max_size=25), st.sets(st.integers(0, 24)), st.sets(st.integers(0, 24)))
def test_all_stores_agree_whatever_is_folded_fails_or_is_opened_again(
    saves: list[Changes], failures: set[int], restarts: set[int]
) -> None:
    check_agreement(saves, failures, restarts)


@pytest.mark.soak
@settings(max_examples=500)
@given(st.lists(any_changes, max_size=40), st.sets(st.integers(0, 39)), st.sets(st.integers(0, 39)))
def test_all_stores_agree_whatever_is_folded_fails_or_is_opened_again_often(
    saves: list[Changes], failures: set[int], restarts: set[int]
) -> None:
    check_agreement(saves, failures, restarts)


def check_agreement(saves: list[Changes], failures: set[int], restarts: set[int]) -> None:
    """A fold begins after some entries; then each save writes a row of it, or deletes an entry."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(dir=fast_directory()) as directory:
        patch.setattr(journal, "MAX_BYTES", 60)
        patch.setattr(sqlite_store, "ROWS_PER_SAVE", 1)
        patch.setattr(sqlite_store, "ENTRIES_PER_SAVE", 1)
        clock, path = Clock(), Path(directory) / "file"
        store, memory, log = SqliteStore(path, clock), MemoryStore(clock), Log(clock)
        for number, changes in enumerate(saves):
            clock.seconds += 1
            if number in failures:
                wrong = Tombstone(SiteId("s", None), HITS, What.COUNT)  # type: ignore[arg-type]
                with pytest.raises(StoreError, match="save failed"):
                    store.save(Changes(changes.rows, changes.dropped, changes.forgotten, [wrong]))
            for each in (store, memory, log):
                each.save(changes)
            if number in restarts:
                store.close()
                store = SqliteStore(path, clock)
        assert state(store) == state(memory) == state(log)
        assert store.debug_state() == {"journal_entries": 0}
        store.close()


@every_store
def test_nothing_is_left_of_a_key_whose_sites_were_all_dropped(create: Create) -> None:
    store = create(Clock())
    store.save(Changes({HITS: {"site": [row_of(WEB, 5)]}}))
    store.save(Changes(dropped=[Dropped(HITS, WEB)]))
    assert list(store.load(COUNTER)) == []


@pytest.mark.slow
@given(st.lists(any_changes, max_size=5))
def test_snapshot_of_a_memory_store_rebuilds_it(saves: list[Changes]) -> None:
    clock, copy = Clock(), MemoryStore()
    store = MemoryStore(clock)
    for each in saves:
        clock.seconds += 1
        store.save(each)
    for second, part in store.snapshot().items():
        copy.save_at(part, second)
    assert in_order(copy.snapshot()) == in_order(store.snapshot())
    assert loaded(copy) == loaded(store)


def in_order(snapshot: dict[int, Changes]) -> dict[int, tuple[Rows, list[Tombstone]]]:
    """Tombstones of one second have no order: a copy meets the sites by second."""
    return {second: (part.rows, sorted(part.tombstones)) for second, part in snapshot.items()}


@pytest.mark.slow
@given(any_changes)
def test_changes_are_read_from_the_log_as_written(changes: Changes) -> None:
    body = Body([(7, changes)], 5)
    assert decode_body(b"".join(record.body for record in split("owner", 1, body, 100))) == body
