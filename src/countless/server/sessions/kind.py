"""What is common to everything that sites are members of, and that readers watch."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable

from countless.server.storage.rows import Publish, Rows, Saved
from countless.server.storage.save_health import SaveHealth

OnChange = Callable[[Saved], None]


class MessageCount:
    """Messages and bytes of one counter since the coordinator started; bytes are its share of the frames."""

    __slots__ = ("began", "counted_before", "down", "down_bytes", "new", "up", "up_bytes")

    def __init__(self, counted_before: int, new: bool, began: float) -> None:
        self.began = began
        self.counted_before = counted_before
        self.new = new  # there was no such counter before
        self.up = self.down = 0
        self.up_bytes = self.down_bytes = 0.0

    def add_up(self, size: float) -> None:
        self.up += 1
        self.up_bytes += size


class Watched:
    """What readers may wait for, and what is saved. `health` says whether they see what is known now; `on_change` is
    called with it when its rows are part of the next save.
    """

    part_of: Saved | None = None

    def __init__(self, health: SaveHealth | None = None, on_change: OnChange | None = None) -> None:
        self.health = health or SaveHealth()
        self.on_change = on_change or _ignore
        self._changed: asyncio.Event | None = None  # created at the first wait: few counters are watched

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change of the published answer, and when the counter is deleted."""
        if self._changed is None:
            self._changed = asyncio.Event()
        return self._changed

    def notify(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    @abstractmethod
    def take(self, rows: Rows) -> Publish:
        """See `Saved`."""


def _ignore(saved: Saved) -> None:
    pass
