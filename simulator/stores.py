"""The disk of a single coordinator: a store of production on a disk that may be slow, fill up, fail in the middle of a
save, and come back. A killed coordinator writes no more.

The time that a save takes is that of `VirtualLoop`. SQLite writes to memory; a restart reads its tables and our journal
again. `broker.py` is the disk of several coordinators.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy

from countless.core.messages import SiteId
from countless.core.random_source import RandomSource
from countless.server.storage.base import StoreError
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import Changes, KeyRows, Tombstone
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.keys import Key

_STEPS_OF_A_SAVE = 400  # of SQLite's virtual machine: some saves have fewer


class CopiedMemoryStore(MemoryStore):
    def copy(self) -> "CopiedMemoryStore":
        copied = CopiedMemoryStore(self._wall_clock)
        state = {name: value for name, value in vars(self).items() if name not in ("_lock", "_wall_clock")}
        vars(copied).update(deepcopy(state))
        return copied


class TearingSqliteStore(SqliteStore):
    def copy(self) -> "TearingSqliteStore":
        """As `countless backup` makes it, and `countless restore`; `tests/server/storage/test_backup.py` has files."""
        copied = TearingSqliteStore(None, self._wall_clock)
        self._db.backup(copied._db)
        return copied

    def save_in_part(self, changes: Changes, steps: int) -> None:
        """SQLite is interrupted after so many steps, unless it is done before."""
        left = [1]
        self._db.set_progress_handler(lambda: left.pop() if left else 0, steps)
        try:
            self.save(changes)
        finally:
            self._db.set_progress_handler(None, 0)


Store = CopiedMemoryStore | TearingSqliteStore


def new_store(kind: str, wall_clock: Callable[[], float]) -> Store:
    return CopiedMemoryStore(wall_clock) if kind == "memory" else TearingSqliteStore(None, wall_clock)


class Disk:
    """The store, as one run of the coordinator sees it."""

    def __init__(self, store: Store, rng: RandomSource, is_full: Callable[[], bool]) -> None:
        self._store = store
        self._rng = rng
        self._is_full = is_full
        self._killed = False
        self._on_killed: Callable[[], None] | None = None

    def kill_at_next_save(self, on_killed: Callable[[], None]) -> None:
        """Just before it has its effect, or just after: what was sent by then must be saved."""
        self._on_killed = on_killed

    def kill(self) -> None:
        """A save that its thread has not begun has no effect."""
        self._killed = True

    def save(self, changes: Changes) -> None:
        if self._killed:
            return
        on_killed, self._on_killed = self._on_killed, None
        if on_killed is None or self._rng.randbelow(2):
            self._save(changes)
        if on_killed is not None:
            self._killed = True
            on_killed()

    def _save(self, changes: Changes) -> None:
        if not self._is_full():
            self._store.save(changes)
        elif isinstance(self._store, TearingSqliteStore) and self._rng.randbelow(2):
            self._store.save_in_part(changes, 1 + self._rng.randbelow(_STEPS_OF_A_SAVE))
        else:
            raise StoreError("database or disk is full")

    def load(self, kind: str) -> Iterator[tuple[Key, KeyRows]]:
        return self._store.load(kind)

    def tombstones(self, site_id: SiteId) -> list[Tombstone]:
        return self._store.tombstones(site_id)

    def tombstone_horizon(self) -> int:
        return self._store.tombstone_horizon()
