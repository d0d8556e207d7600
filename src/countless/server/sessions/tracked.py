"""What sites are members of and readers watch, for everything that knows no kind."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from countless.core.machine import Machine
from countless.core.messages import SiteId
from countless.server.sessions.readable import MessageCount, TotalOnly
from countless.server.storage.health import SaveHealth
from countless.server.storage.rows import Publish, Rows, Saved
from countless.wire.keys import Key

OnChange = Callable[[Saved], None]


class Watched(TotalOnly):
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


class Whole(Saved, Protocol):
    """What a window is one of."""

    sweep_at: float  # by the coordinator's clock: when it has to be looked at

    def lose_site(self, oldest: int, newest: int) -> None:
        """A session that was a member of these windows, and of none before them, was retired."""


class Tracked(Protocol):
    """What sites are members of: a counter, a family, an open window, a budget's period. It stays the same object as
    long as it has members.
    """

    @property
    def key(self) -> Key: ...

    @property
    def coordinator(self) -> Machine[Any, Any]: ...

    @property
    def traffic(self) -> MessageCount: ...

    @property
    def part_of(self) -> Whole | None:
        """None: it is no window."""

    def mark(self) -> None:
        """The round or the answer may have changed, and is part of the next save."""

    def mark_site(self, site_id: SiteId) -> None:
        """What is saved of a site may have changed."""

    def mark_left(self, site_id: SiteId) -> None:
        """A site is not a member any more."""
