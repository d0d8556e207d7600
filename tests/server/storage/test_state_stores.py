"""Every state store: what is saved is loaded, completely and in the order of the saves."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import SavedSite
from countless.core.coordinator import PersistentState
from countless.core.family.messages import Steps
from countless.core.family.rule import FamilyRule
from countless.core.family.state import SavedMember
from countless.core.messages import SiteId
from countless.core.windows.rule import WindowRule
from countless.server.cluster.records import Body, decode_body, from_saved, split, to_saved
from countless.server.storage.base import (
    BudgetFields,
    Changes,
    Config,
    CounterFields,
    FamilyChanges,
    FamilyFields,
    MemberFields,
    PeriodFields,
    SavedBudget,
    SavedFamily,
    SavedPeriod,
    StateStore,
    Tombstone,
    What,
    WindowFields,
    WindowKey,
)
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.incarnations import first_of, second_of
from countless.wire.keys import ALL, COUNTER, FAMILY, Key
from support.tombstones import final, shown

WEB, OLD, NEWER = SiteId("web", 2**62), SiteId("web", 1), SiteId("web", first_of(700))


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
        second = int(self._wall_clock())
        (record,) = split("owner", 1, Body([to_saved(changes, second)]), 1 << 30)
        (saved,) = decode_body(record.body).saves
        self.save_at(from_saved(saved), saved.saved_at)


every_store = pytest.mark.parametrize("create", [in_sqlite, in_memory, Log])
Create = Callable[[Clock], StateStore]


def created(name: str, config: Config = Config(), *fields: Any) -> Changes:  # noqa: B008 - frozen
    return Changes({name: CounterFields(*fields or (1, 5, 0))}, configs={name: config})


@every_store
def test_saved_changes_are_loaded(create: Create) -> None:
    config = Config(alpha=0.02, scheme="dithered")
    store = create(Clock())
    store.save(created("hits", config, 7, 2**80, 2**70))
    store.save(Changes(counts={"hits": {WEB: 2**90, OLD: 4}}))
    store.save(Changes(counts={"hits": {WEB: 2**90 + 1, OLD: None}}, tombstones=[final("hits", OLD, 5)]))
    for _ in range(2):
        assert store.load() == {"hits": (config, PersistentState(7, 2**80, 2**70, ((WEB, 2**90 + 1),)))}
    assert shown(store.tombstones(OLD)) == (("hits", 5),)
    assert shown(store.tombstones(WEB)) == ()


@every_store
def test_fractional_published_total_is_loaded(create: Create) -> None:
    store = create(Clock())
    store.save(created("hits", Config(), 1, 12.5, 0))
    assert store.load()["hits"][1].published == 12.5


@every_store
def test_deleted_counter_leaves_nothing_behind(create: Create) -> None:
    store = create(Clock())
    store.save(created("hits"))
    store.save(Changes(counts={"hits": {WEB: 5}}, tombstones=[final("hits", OLD, 3)]))
    store.save(Changes(deleted=["hits"]))
    assert store.load() == {}
    assert shown(store.tombstones(OLD)) == ()


@every_store
def test_counter_deleted_and_created_in_one_save_is_new(create: Create) -> None:
    store = create(Clock())
    store.save(created("hits"))
    store.save(Changes(counts={"hits": {WEB: 5}}))
    store.save(Changes({"hits": CounterFields(1, 2, 0)}, {"hits": {OLD: 2}}, {"hits": Config()}, deleted=["hits"]))
    assert store.load() == {"hits": (Config(), PersistentState(1, 2, 0, ((OLD, 2),)))}


@every_store
def test_pruning_drops_old_tombstones_and_raises_the_horizon(create: Create) -> None:
    clock = Clock()
    store = create(clock)
    store.save(Changes(tombstones=[final("hits", OLD, 3)]))
    clock.seconds = 2000.0
    store.save(Changes(tombstones=[final("hits", NEWER, 4)]))
    store.save(Changes(prune_before=900))
    assert (store.tombstone_horizon(), shown(store.tombstones(OLD))) == (0, (("hits", 3),))
    store.save(Changes(prune_before=1500))
    assert (store.tombstone_horizon(), shown(store.tombstones(OLD)), shown(store.tombstones(NEWER))) == (
        1,
        (),
        (("hits", 4),),
    )
    store.save(Changes(prune_before=2500))
    assert (store.tombstone_horizon(), shown(store.tombstones(NEWER))) == (701, ())


@every_store
def test_horizon_does_not_fall_when_the_clock_does(create: Create) -> None:
    clock = Clock()
    store = create(clock)
    store.save(Changes(tombstones=[final("hits", NEWER, 4)]))
    store.save(Changes(prune_before=2000))
    clock.seconds = 100.0
    store.save(Changes(tombstones=[final("hits", OLD, 3)]))
    store.save(Changes(prune_before=200))
    assert (store.tombstone_horizon(), shown(store.tombstones(OLD))) == (701, ())


@every_store
def test_wrong_clock_of_one_process_does_not_move_the_horizon_ahead_of_all_others(create: Create) -> None:
    store = create(Clock())
    store.save(Changes(tombstones=[final("hits", WEB, 4), final("hits", NEWER, 1)]))
    store.save(Changes(prune_before=2000))
    assert (store.tombstone_horizon(), shown(store.tombstones(WEB))) == (701, (("hits", 4),))
    store.save(Changes(prune_before=second_of(WEB.incarnation) + 1))
    assert (store.tombstone_horizon(), shown(store.tombstones(WEB))) == (second_of(WEB.incarnation) + 1, ())


@every_store
def test_tombstones_of_an_incarnation_are_dropped_together(create: Create) -> None:
    clock = Clock()
    store = create(clock)
    store.save(Changes(tombstones=[final("hits", OLD, 3)]))
    clock.seconds = 2000.0
    store.save(Changes(tombstones=[final("misses", OLD, 4)]))
    store.save(Changes(prune_before=1500))
    assert (store.tombstone_horizon(), shown(store.tombstones(OLD))) == (0, (("hits", 3), ("misses", 4)))


keys = st.builds(Key, st.sampled_from([COUNTER, FAMILY]), st.sampled_from(["a", "b"]), st.just(""), st.just(0))
names, incarnations = st.sampled_from(["a", "b", "c"]), st.integers(1, 2)
sites = st.builds(SiteId, st.sampled_from(["x", "y"]), incarnations, st.just(""))
counted = st.builds(SiteId, st.sampled_from(["x", "y"]), incarnations, st.sampled_from(["", 'a{b="c"}']))
window_keys = st.builds(WindowKey, names, st.integers(-3, 3))
window_fields = st.builds(
    WindowFields, st.integers(0, 2**70), st.none() | st.integers(0, 2**70), st.integers(0, 3), st.integers(0, 9)
)
fields = st.builds(CounterFields, st.integers(0, 9), st.integers(0, 2**70) | st.floats(0, 9), st.integers(0, 2**70))


numbers, family = st.integers(0, 2**70), st.just(Key(FAMILY, "a"))
watermarks = keys.map(lambda key: key._replace(calendar="hour", period=ALL))
tombstones = st.one_of(
    st.builds(Tombstone, sites, keys, st.just(What.COUNT), st.none(), numbers),
    st.builds(Tombstone, sites, st.just(Key(COUNTER, "a", "hour", 5)), st.just(What.COUNT), st.none(), numbers),
    st.builds(Tombstone, sites, watermarks, st.just(What.WATERMARK), st.none(), numbers),
    st.builds(Tombstone, sites, family, st.just(What.COUNT), st.sampled_from(["", "x"]), numbers),
    st.builds(Tombstone, sites, family, st.just(What.LEFT), st.none(), st.just(0)),
)


@st.composite
def changes(draw: st.DrawFn) -> Changes:
    new = draw(st.sets(names, max_size=2))
    return Changes(
        {name: draw(fields) for name in new},
        draw(
            st.fixed_dictionaries({name: st.dictionaries(counted, st.none() | st.integers(0, 2**70)) for name in new})
        ),
        {
            name: Config(windows=draw(st.sampled_from([None, WindowRule("day", "Europe/Berlin", 6, 2**70)])))
            for name in new
        },
        draw(st.lists(tombstones, max_size=2, unique_by=lambda each: each[:4])),
        draw(st.lists(names, max_size=1)),
        draw(st.none() | st.integers(995, 1010)),
        windows=draw(st.dictionaries(window_keys, st.none() | window_fields, max_size=3)),
        closed=draw(st.lists(names, max_size=1)),
    )


@pytest.mark.slow
@given(st.lists(changes(), max_size=10))
def test_memory_and_sqlite_stores_agree(saves: list[Changes]) -> None:
    clock = Clock()
    stores = [create(clock) for create in (in_sqlite, in_memory)]
    for each in saves:
        clock.seconds += 1
        for store in stores:
            store.save(each)

    def state(store: StateStore) -> Any:
        counters = {name: (c, *s[:3], sorted(s.known)) for name, (c, s) in store.load().items()}
        ids = [SiteId(site, incarnation) for site in ("x", "y") for incarnation in (1, 2)]
        tombstones = [sorted(store.tombstones(site_id), key=repr) for site_id in ids]
        return counters, list(store.load_windows()), tombstones, store.tombstone_horizon()

    assert state(stores[0]) == state(stores[1])


@pytest.mark.slow
@given(st.lists(changes(), max_size=5))
def test_snapshot_of_a_memory_store_rebuilds_it(saves: list[Changes]) -> None:
    clock, copy = Clock(), MemoryStore()
    store = MemoryStore(clock)
    for each in saves:
        clock.seconds += 1
        store.save(each)
    for second, part in store.snapshot().items():
        copy.save_at(part, second)
    assert (copy.load(), copy.snapshot()) == (store.load(), store.snapshot())
    assert list(copy.load_windows()) == list(store.load_windows())


@pytest.mark.slow
@given(changes())
def test_changes_are_read_from_the_log_as_written(each: Changes) -> None:
    each.counts = {name: counts for name, counts in each.counts.items() if counts}
    body = Body([to_saved(each, 7)])
    [saved] = decode_body(b"".join(record.body for record in split("owner", 1, body, 100))).saves
    assert (from_saved(saved), saved.saved_at) == (each, 7)


@every_store
def test_closed_window_keeps_its_total_and_the_tombstones(create: Create) -> None:
    store, name, rule = create(Clock()), "hits@hour:5", WindowRule("hour", "UTC", 30, 2**70, 3)
    window = Changes(created(name).counters, {name: {WEB: 2**70}}, {name: Config()}, [final(name, OLD, 3)])
    window.windows = {WindowKey("hits", 5): WindowFields(2**70, None, 2, 7)}
    store.save(created("hits", Config(windows=rule), 4, 2.5, 2**70))
    store.save(window)
    assert store.load()["hits"] == (Config(windows=rule), PersistentState(4, 2.5, 2**70, ()))
    assert list(store.load_windows()) == [*window.windows.items()]
    store.save(Changes(windows={WindowKey("hits", 5): WindowFields(0, 2**80)}, closed=[name]))
    for _ in range(2):
        assert list(store.load()) == ["hits"]
        assert list(store.load_windows()) == [(WindowKey("hits", 5), WindowFields(0, 2**80))]
        assert shown(store.tombstones(OLD)) == ((name, 3),)
    window.closed = [name]  # opened again in the same save
    store.save(window)
    assert store.load()[name][1].known == ((WEB, 2**70),)
    store.save(Changes(windows={WindowKey("hits", 5): None}, closed=[name]))
    store.save(Changes(windows={WindowKey("hits", 6): WindowFields(0, 1)}))
    assert list(store.load_windows()) == [(WindowKey("hits", 6), WindowFields(0, 1))]
    store.save(Changes(deleted=["hits"]))
    assert (store.load(), list(store.load_windows())) == ({}, [])


@every_store
def test_budgets_are_loaded_as_saved_and_a_deleted_one_starts_again(create: Create) -> None:
    store, tokens, fields = create(Clock()), BudgetId("tokens", 2), PeriodFields(2**62, 7, 1, 3, False)
    budget = BudgetFields(BudgetRule(2**62, "month", "Europe/Berlin", 31, 0.02), 2)
    store.save(
        Changes(budgets={"tokens": budget}, periods={tokens: fields}, budget_sites={tokens: {WEB: SavedSite(5)}})
    )
    old = SavedSite(2**62, given_up=True, spent=2**61)
    changed: dict[SiteId, SavedSite | None] = {OLD: old, WEB: None}
    store.save(Changes(periods={tokens: fields._replace(resetting=True)}, budget_sites={tokens: changed}))
    period = SavedPeriod(fields._replace(resetting=True), {OLD: old})
    assert store.load_budgets() == {"tokens": SavedBudget(budget, {2: period})}
    assert period.state(2**62) == (2**62, 2**62, 7, 3, ((OLD, old),), (), 1, True)
    later = budget._replace(first_period=3)
    store.save(Changes(budgets={"tokens": later}, periods={tokens._replace(period=3): fields}, closed_periods=[tokens]))
    assert store.load_budgets() == {"tokens": SavedBudget(later, {3: SavedPeriod(fields, {})})}
    store.save(Changes(budgets={"tokens": budget}, deleted_budgets=["tokens"]))
    assert store.load_budgets() == {"tokens": SavedBudget(budget, {})}
    store.save(Changes(deleted_budgets=["tokens"]))
    assert store.load_budgets() == {}


@every_store
def test_families_are_loaded_as_saved_and_a_deleted_one_takes_its_tombstones_along(create: Create) -> None:
    store, rule = create(Clock()), FamilyRule("values", 0.01, 0.02)
    fields = FamilyFields(rule, 3, Steps(2**70, 5), 7, 2**80, 1)
    member = MemberFields(Steps(4, 2**66), 2**65)
    first = FamilyChanges(fields, {"a": 2**70, "": 1}, {WEB: member, OLD: member}, {WEB: {"a": 2**69}, OLD: {"a": 5}})
    store.save(Changes(families={"f": first, "g": FamilyChanges(fields)}))
    tombstones = [
        Tombstone(OLD, Key(FAMILY, "f"), What.COUNT, None, 9),
        Tombstone(OLD, Key(FAMILY, "f"), What.COUNT, "a", 5),
        Tombstone(OLD, Key(FAMILY, "g"), What.LEFT, None, 0),
        Tombstone(OLD, Key(FAMILY, "ff"), What.COUNT, None, 1),
        Tombstone(OLD, Key(FAMILY, "ff"), What.COUNT, "", 1),
        Tombstone(OLD, Key(FAMILY, "ff", "hour", ALL), What.WATERMARK, None, 7),
    ]
    later = FamilyChanges(fields._replace(round=4), {"b": 1}, {OLD: None}, {WEB: {"b": 1}})
    store.save(Changes(families={"f": later}, tombstones=tombstones))
    saved = store.load_families()
    members = {WEB: SavedMember(*member, {"a": 2**69, "b": 1})}
    assert saved["f"] == SavedFamily(fields._replace(round=4), {"a": 2**70, "": 1, "b": 1}, members)
    assert saved["f"].state.members == members
    assert saved["g"] == SavedFamily(fields, {}, {})
    store.save(Changes(deleted_families=["f"], families={"f": FamilyChanges(fields)}))
    assert store.load_families() == {"f": SavedFamily(fields, {}, {}), "g": SavedFamily(fields, {}, {})}
    assert sorted(store.tombstones(OLD), key=repr) == sorted(tombstones[2:], key=repr)
