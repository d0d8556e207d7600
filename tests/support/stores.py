"""State stores that fail or wait when a test says so."""

import asyncio
from threading import Event

from countless.server.storage.base import Changes, StoreError
from countless.server.storage.memory_store import MemoryStore


class FullStore(MemoryStore):
    """Saves fail while `full` is set, as on a full disk."""

    full = False

    def save(self, changes: Changes) -> None:
        if self.full:
            raise StoreError("database or disk is full")
        super().save(changes)


class PausedStore(MemoryStore):
    """Saves wait between `pause` and `resume`."""

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
        assert await asyncio.to_thread(self._reached.wait, 20)

    def save(self, changes: Changes) -> None:
        self._reached.set()
        assert self._resumed.wait(20)
        super().save(changes)
