"""What a store has, as the objects that were saved; and changes that save some."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from countless.core.coordinator import PersistentCounter
from countless.core.family.rule import FamilyRule
from countless.core.messages import SiteId
from countless.server.kinds.budget_periods import SavedBudget
from countless.server.kinds.counter import CounterFields, SavedCounter
from countless.server.kinds.family import SavedFamily
from countless.server.sessions.periodic import WindowFields
from countless.server.settings import Config
from countless.server.storage.rows import Changes, KeyRows, StateStore, alone, row_of, value_of
from countless.wire.keys import BUDGET, COUNTER, FAMILY, key_of


def counter_rows(
    config: Config | None = None,
    fields: CounterFields | None = None,
    counts: Mapping[SiteId, int | None] | None = None,
) -> KeyRows:
    rows: KeyRows = {}
    if config is not None:
        rows["spec"] = alone(config)
    if fields is not None:
        rows["state"] = alone(fields)
    if counts:
        rows["site"] = [row_of(site_id, n) for site_id, n in counts.items()]
    return rows


def counter_changes(
    name: str,
    config: Config | None = None,
    fields: CounterFields | None = None,
    counts: Mapping[SiteId, int | None] | None = None,
) -> Changes:
    return Changes({key_of(COUNTER, name): counter_rows(config, fields, counts)})


def load_counters(store: StateStore) -> dict[str, tuple[Config, PersistentCounter]]:
    """And windows that are open."""
    return {
        str(key): (value_of(key, rows, "spec", Config), SavedCounter.of(key, rows).state)
        for key, rows in store.load(COUNTER)
        if "state" in rows
    }


def load_windows(store: StateStore) -> list[tuple[tuple[str, int], WindowFields]]:
    return [
        ((key.name, key.period), value_of(key, rows, "window", WindowFields))
        for key, rows in store.load(COUNTER)
        if "window" in rows
    ]


def load_families(store: StateStore) -> dict[str, SavedFamily]:
    """And windows; those that were dropped together."""
    return {str(key): SavedFamily.of(key, rows) for key, rows in store.load(FAMILY)}


def load_rules(store: StateStore) -> dict[str, FamilyRule]:
    return {str(key): value_of(key, rows, "spec", FamilyRule) for key, rows in store.load(FAMILY)}


def load_budgets(store: StateStore) -> dict[str, SavedBudget]:
    return {name: SavedBudget.of(group) for name, group in groupby(store.load(BUDGET), key=lambda each: each[0].name)}


def load_all(store: StateStore) -> list[object]:
    return [each for kind in (BUDGET, COUNTER, FAMILY) for each in store.load(kind)]


def fast_directory() -> str | None:
    """In memory where there is such a place: for tests of what is written, not of surviving a power cut."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
