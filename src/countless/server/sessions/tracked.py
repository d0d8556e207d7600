"""The things of which sites are members and that readers watch, for everything that knows no kind."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import time
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from countless.core.machine import Machine
from countless.core.messages import SiteId
from countless.core.periods.window import WindowRule
from countless.core.random_source import RandomSource
from countless.randomness import SYSTEM_RANDOM
from countless.server.sessions.readable import AnyAnswer, MessageCount, TotalOnly
from countless.server.storage.health import SaveHealth
from countless.server.storage.rows import KeyRows, Publish, Rows, Saved, Stored, alone
from countless.wire.keys import Key


class Spec(Protocol):
    """The choices for a name. It does not change; another one may replace it."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def windows(self) -> WindowRule | None: ...

    @property
    def windows_kept(self) -> int:
        """After so many closed windows the oldest is dropped."""


S = TypeVar("S", bound=Spec)


def _ignore(saved: Saved) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of its service that everything has that is watched."""

    health: SaveHealth = field(default_factory=SaveHealth)  # whether readers see what is known now
    changed: Callable[[Saved], None] = _ignore  # its rows are part of the next save
    remove: Callable[[Stored], None] = _ignore  # it is not saved any more
    wall_clock: Callable[[], float] = time
    rng: RandomSource = SYSTEM_RANDOM


class Watched(TotalOnly):
    """A thing for which readers may wait, and that is saved."""

    part_of: Saved | None = None

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self._changed: asyncio.Event | None = None  # created at the first wait: few counters are watched

    @property
    def health(self) -> SaveHealth:
        return self.around.health

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


class Whole(Saved, Protocol):
    """The whole of which a window is one."""

    sweep_at: float  # by the coordinator's clock: when it has to be looked at

    def lose_site(self, oldest: int, newest: int) -> None:
        """A session that was a member of these windows, and of none before them, was retired."""


class Tracked(Protocol):
    """A thing of which sites are members: a counter, a family, an open window, a budget's period. It stays the same
    object as long as it has members.
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
        """Note that what is saved of a site may have changed."""

    def mark_left(self, site_id: SiteId) -> None:
        """A site is not a member any more."""


class Counted(Watched, Generic[S]):
    """A counter, or a family, without windows; or one window: then `part_of` is the whole. Its spec is saved as `spec`;
    a window has that with which it was opened, without windows.
    """

    coordinator: Any
    traffic: MessageCount
    taken: AnyAnswer  # as of the last `take`

    def __init__(self, key: Key, spec: S, around: Surroundings, part_of: Whole | None) -> None:
        super().__init__(around)
        self.key = key
        self.name = str(key)
        self.spec = spec
        self.part_of: Whole | None = part_of
        self._changed_spec = False

    @property
    @abstractmethod
    def known_total(self) -> int:
        """The sum of all counts received: never more than the true total."""

    @property
    @abstractmethod
    def members(self) -> Iterable[SiteId]:
        """The sites that have not left."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest total so far: a total that was published never falls."""

    def mark(self) -> None:
        """The round or the answer may have changed."""
        self.around.changed(self)

    @abstractmethod
    def mark_site(self, site_id: SiteId) -> None:
        """See `Tracked`."""

    @abstractmethod
    def mark_left(self, site_id: SiteId) -> None: ...

    def mark_spec(self) -> None:
        """It is new, or has another spec."""
        self._changed_spec = True
        self.around.changed(self)

    def _own_rows(self, rows: Rows) -> KeyRows:
        own = rows.get(self.key)  # of a window its whole may have added one
        if own is None:
            own = rows[self.key] = {}
        if self._changed_spec:
            own["spec"] = alone(self.spec)
            self._changed_spec = False
        return own
