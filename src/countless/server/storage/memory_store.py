"""A state store in dictionaries: the replica that a shard keeps of its log."""

from collections.abc import Callable, Iterator
from threading import Lock
from time import time
from typing import Any

from countless.core.messages import SiteId
from countless.server.storage.rows import Changes, KeyRows, Place, StoredRows, Tombstone, apply
from countless.wire.incarnations import second_of
from countless.wire.keys import Key


class MemoryStore:
    """Implements `StateStore`; nothing survives the process."""

    def __init__(self, wall_clock: Callable[[], float] = time) -> None:
        self._wall_clock = wall_clock
        self._lock = Lock()
        self._rows: StoredRows = {}
        self._tombstones: dict[SiteId, dict[Tombstone, tuple[int, int]]] = {}  # without value: that; when it was set
        self._horizon = 0

    def load(self, kind: str) -> Iterator[tuple[Key, KeyRows]]:
        with self._lock:
            for key in sorted(key for key in self._rows if key.kind == kind):
                yield key, _listed(self._rows[key])

    def save(self, changes: Changes) -> None:
        self.save_at(changes, int(self._wall_clock()))

    def save_at(self, changes: Changes, second: int) -> None:
        """Like `save`; tombstones get this time, so that replaying a log does not change their age."""
        with self._lock:
            apply(self._rows, changes)
            if changes.forgotten:
                self._forget(set(changes.forgotten))
            for tombstone in changes.tombstones:
                rows = self._tombstones.setdefault(tombstone.site_id, {})
                rows[tombstone._replace(value=0)] = tombstone.value, second
            if changes.prune_before is not None:
                self._prune(changes.prune_before)

    def _forget(self, keys: set[Key]) -> None:
        for site_id, rows in list(self._tombstones.items()):
            for tombstone in [each for each in rows if each.key in keys]:
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
            rows = self._tombstones.get(site_id, {})
            found = [each._replace(value=value) for each, (value, _) in rows.items()]
        return sorted(found, key=lambda each: (each.key, each.what, each.label))

    def tombstone_horizon(self) -> int:
        with self._lock:
            return self._horizon

    def raise_tombstone_horizon(self, second: int) -> None:
        with self._lock:
            self._horizon = max(self._horizon, second)

    def snapshot(self) -> dict[int, Changes]:
        """Changes that rebuild this state: tombstones by the second they were set, everything else under 0."""
        with self._lock:
            snapshot = {0: Changes({key: _listed(rows) for key, rows in self._rows.items()})}
            for each in self._tombstones.values():
                for tombstone, (value, second) in each.items():
                    snapshot.setdefault(second, Changes()).tombstones.append(tombstone._replace(value=value))
            return snapshot


def _listed(stored: dict[str, dict[Place, Any]]) -> KeyRows:
    return {what: [(*place, value) for place, value in kept.items()] for what, kept in stored.items() if kept}
