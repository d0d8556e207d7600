"""A state store in dictionaries: the replica that a shard keeps of its log."""

from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from time import time

from countless.core.budget.messages import BudgetId
from countless.core.coordinator import PersistentState
from countless.core.family.state import SavedMember
from countless.core.messages import SiteId
from countless.server.storage.base import (
    Changes,
    Config,
    CounterFields,
    FamilyChanges,
    SavedBudget,
    SavedFamily,
    SavedPeriod,
    Tombstone,
    WindowFields,
    WindowKey,
    family_text,
    labels_prefix,
    tombstone_of_text,
    tombstone_text,
)
from countless.wire.incarnations import second_of
from countless.wire.keys import FAMILY, Key


class MemoryStore:
    """Implements `StateStore`; nothing survives the process."""

    def __init__(self, wall_clock: Callable[[], float] = time) -> None:
        self._wall_clock = wall_clock
        self._lock = Lock()
        self._configs: dict[str, Config] = {}
        self._fields: dict[str, CounterFields] = {}
        self._counts: dict[str, dict[SiteId, int]] = {}
        self._tombstones: dict[SiteId, dict[str, tuple[int, int]]] = {}  # by text: value, second it was set
        self._horizon = 0
        self._budgets: dict[str, SavedBudget] = {}
        self._windows: dict[str, dict[int, WindowFields]] = {}
        self._families: dict[str, FamilyChanges] = {}  # all changes so far; no member is None

    def load(self) -> dict[str, tuple[Config, PersistentState]]:
        with self._lock:
            return {
                name: (config, PersistentState(*self._fields[name], tuple(self._counts.get(name, {}).items())))
                for name, config in sorted(self._configs.items())
            }

    def load_windows(self) -> Iterator[tuple[WindowKey, WindowFields]]:
        with self._lock:
            rows = [(name, period) for name, windows in self._windows.items() for period in windows]
            for name, period in sorted(rows):
                yield WindowKey(name, period), self._windows[name][period]

    def load_budgets(self) -> dict[str, SavedBudget]:
        with self._lock:
            return {
                name: SavedBudget(budget.fields, {number: _copy(each) for number, each in budget.periods.items()})
                for name, budget in sorted(self._budgets.items())
            }

    def load_families(self) -> dict[str, SavedFamily]:
        with self._lock:
            return {name: _saved_family(family) for name, family in sorted(self._families.items())}

    def save(self, changes: Changes) -> None:
        self.save_at(changes, int(self._wall_clock()))

    def save_at(self, changes: Changes, second: int) -> None:
        """Like `save`; tombstones get this time, so that replaying a log does not change their age."""
        with self._lock:
            for name in changes.deleted:
                self._delete(name)
            for name in changes.closed:
                self._remove_rows(name)
            self._configs |= changes.configs
            self._fields |= changes.counters
            for name, counts in changes.counts.items():
                stored = self._counts.setdefault(name, {})
                for site_id, count in counts.items():
                    if count is None:
                        stored.pop(site_id, None)
                    else:
                        stored[site_id] = count
            self._save_families(changes)
            for site_id, key, what, label, value in changes.tombstones:
                self._tombstones.setdefault(site_id, {})[tombstone_text(key, what, label)] = (value, second)
            if changes.prune_before is not None:
                self._prune(changes.prune_before)
            self._save_windows(changes)
            self._save_budgets(changes)

    def _save_windows(self, changes: Changes) -> None:
        for (name, period), fields in changes.windows.items():
            windows = self._windows.setdefault(name, {})
            if fields is None:
                windows.pop(period, None)
            else:
                windows[period] = fields

    def _save_budgets(self, changes: Changes) -> None:
        for name in changes.deleted_budgets:
            self._budgets.pop(name, None)
        for name, period in changes.closed_periods:
            if name in self._budgets:
                self._budgets[name].periods.pop(period, None)
        for name, budget in changes.budgets.items():
            self._budgets[name] = SavedBudget(budget, self._budgets[name].periods if name in self._budgets else {})
        for (name, period), fields in changes.periods.items():
            periods = self._budgets[name].periods
            periods[period] = SavedPeriod(fields, periods[period].sites if period in periods else {})
        for (name, period), sites in changes.budget_sites.items():
            stored = self._budgets[name].periods[period].sites
            for site_id, saved in sites.items():
                if saved is None:
                    stored.pop(site_id, None)
                else:
                    stored[site_id] = saved

    def _save_families(self, changes: Changes) -> None:
        for name in changes.deleted_families:
            self._families.pop(name, None)
            self._drop_tombstones(partial(_is_of_family, name))
        for name in changes.dropped_families:
            self._families.pop(name, None)
        for name, family in changes.families.items():
            stored = self._families.setdefault(name, FamilyChanges(family.fields))
            stored.fields = family.fields
            stored.labels.update(family.labels)
            for site_id, member in family.members.items():
                if member is None:
                    stored.members.pop(site_id, None)
                    stored.counts.pop(site_id, None)
                else:
                    stored.members[site_id] = member
            for site_id, counts in family.counts.items():
                stored.counts.setdefault(site_id, {}).update(counts)

    def _remove_rows(self, name: str) -> None:
        for table in (self._configs, self._fields, self._counts):
            table.pop(name, None)

    def _delete(self, name: str) -> None:
        self._remove_rows(name)
        self._windows.pop(name, None)
        self._drop_tombstones(lambda tombstone: tombstone == name)

    def _drop_tombstones(self, matches: Callable[[str], bool]) -> None:
        for site_id, rows in list(self._tombstones.items()):
            for tombstone in filter(matches, list(rows)):
                del rows[tombstone]
            if not rows:
                del self._tombstones[site_id]

    def _prune(self, before: int) -> None:
        latest = max(before, self._horizon)
        for site_id, rows in list(self._tombstones.items()):
            second = second_of(site_id.incarnation)
            if second <= latest and all(set_at < before for _, set_at in rows.values()):
                del self._tombstones[site_id]
                self._horizon = max(self._horizon, second + 1)

    def tombstones(self, site_id: SiteId) -> list[Tombstone]:
        with self._lock:
            rows = sorted(self._tombstones.get(site_id, {}).items())
            return [tombstone_of_text(site_id, text, value) for text, (value, _) in rows]

    def tombstone_horizon(self) -> int:
        with self._lock:
            return self._horizon

    def raise_tombstone_horizon(self, second: int) -> None:
        with self._lock:
            self._horizon = max(self._horizon, second)

    def snapshot(self) -> dict[int, Changes]:
        """Changes that rebuild this state: tombstones by the second they were set, everything else under 0."""
        with self._lock:
            counts: dict[str, dict[SiteId, int | None]] = {
                name: dict(rows) for name, rows in self._counts.items() if rows
            }
            snapshot = {0: Changes(dict(self._fields), counts, dict(self._configs))}
            snapshot[0].budgets = {name: budget.fields for name, budget in self._budgets.items()}
            for name, budget in self._budgets.items():
                for number, period in budget.periods.items():
                    snapshot[0].periods[BudgetId(name, number)] = period.fields
                    snapshot[0].budget_sites[BudgetId(name, number)] = dict(period.sites)
            snapshot[0].windows = {
                WindowKey(name, period): fields
                for name, windows in self._windows.items()
                for period, fields in windows.items()
            }
            snapshot[0].families = {name: _copy_family(family) for name, family in self._families.items()}
            for site_id, rows in self._tombstones.items():
                for text, (value, second) in rows.items():
                    tombstone = tombstone_of_text(site_id, text, value)
                    snapshot.setdefault(second, Changes()).tombstones.append(tombstone)
            return snapshot


def _copy(period: SavedPeriod) -> SavedPeriod:
    return SavedPeriod(period.fields, dict(period.sites))


def _is_of_family(family: str, tombstone: str) -> bool:
    key = Key(FAMILY, family)
    return tombstone == family_text(key) or tombstone.startswith(labels_prefix(key))


def _copy_family(family: FamilyChanges) -> FamilyChanges:
    counts = {site_id: dict(each) for site_id, each in family.counts.items()}
    return FamilyChanges(family.fields, dict(family.labels), dict(family.members), counts)


def _saved_family(family: FamilyChanges) -> SavedFamily:
    members = {
        site_id: SavedMember(*member, dict(family.counts.get(site_id, {})))
        for site_id, member in family.members.items()
        if member is not None
    }
    return SavedFamily(family.fields, dict(family.labels), members)
