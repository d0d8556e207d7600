"""State stores that fail or wait when a test says so."""

import asyncio
from threading import Event

from countless.core.messages import SiteId
from countless.server.storage.base import StoreError
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import Changes, Tombstone
from support.service import TIMEOUT_S


class FullStore(MemoryStore):
    """Saves fail while `full` is set, as on a full disk."""

    full = False

    def save(self, changes: Changes) -> None:
        if self.full:
            raise StoreError("database or disk is full")
        super().save(changes)


class PausedStore(MemoryStore):
    """Saves, and reads of tombstones, wait between `pause` and `resume`."""

    def __init__(self) -> None:
        super().__init__()
        self._resumed, self._reached = Event(), Event()
        self._resumed.set()

    def pause(self) -> None:
        self._resumed.clear()
        self._reached.clear()

    def resume(self) -> None:
        self._resumed.set()

    async def save_waits(self) -> None:
        """Returns when a save waits."""
        assert await asyncio.to_thread(self._reached.wait, TIMEOUT_S)

    def save(self, changes: Changes) -> None:
        self._reached.set()
        assert self._resumed.wait(TIMEOUT_S)
        super().save(changes)

    def tombstones(self, site_id: SiteId) -> list[Tombstone]:
        assert self._resumed.wait(TIMEOUT_S)
        return super().tombstones(site_id)
