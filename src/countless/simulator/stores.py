"""The coordinator's disk: a store of production that may be full, and that a killed coordinator writes no more.

| store  | what is simulated below it                                                                   |
|--------|----------------------------------------------------------------------------------------------|
| memory | nothing                                                                                      |
| sqlite | nothing: SQLite writes to memory, and a restart reads its tables and our journal again       |
| log    | the broker's stream: an append may fail, its confirmation may be lost, a record may be torn  |
"""

from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

from nats.errors import TimeoutError as NatsTimeout
from nats.js.errors import APIError, NotFoundError

from countless.core.coordinator import PersistentState
from countless.core.messages import SiteId
from countless.core.random_source import RandomSource
from countless.errors import CountlessError
from countless.server.cluster.log_store import LogStore
from countless.server.storage.base import (
    Changes,
    Config,
    SavedBudget,
    SavedFamily,
    StateStore,
    StoreError,
    WindowFields,
    WindowKey,
)
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.sqlite_store import SqliteStore

T = TypeVar("T")
STORES = ("memory", "sqlite", "log")
_WRONG_LAST_SEQUENCE = 10071


class Disk:
    """The store, as one coordinator sees it."""

    def __init__(self, store: StateStore, is_full: Callable[[], bool]) -> None:
        self._store = store
        self._is_full = is_full
        self._killed = False

    def kill(self) -> None:
        """A save that its thread has not begun has no effect; a part of it may arrive at a broker."""
        self._killed = True

    def save(self, changes: Changes) -> None:
        if self._killed:
            if isinstance(self._store, LogStore):
                with suppress(CountlessError):
                    self._store.save(changes)
            return
        if self._is_full():
            raise StoreError("database or disk is full")
        self._store.save(changes)

    def load(self) -> dict[str, tuple[Config, PersistentState]]:
        return self._store.load()

    def load_windows(self) -> Iterator[tuple[WindowKey, WindowFields]]:
        return self._store.load_windows()

    def load_budgets(self) -> dict[str, SavedBudget]:
        return self._store.load_budgets()

    def load_families(self) -> dict[str, SavedFamily]:
        return self._store.load_families()

    def tombstones(self, site_id: SiteId) -> tuple[tuple[str, int], ...]:
        return self._store.tombstones(site_id)

    def tombstone_horizon(self) -> int:
        return self._store.tombstone_horizon()


class Media(Protocol):
    """What survives the coordinator."""

    async def open(self) -> StateStore:
        """For a coordinator that starts."""

    def kill(self) -> None:
        """The coordinator that has opened it last was killed."""

    def close(self) -> None: ...


class Kept:
    """A store that is its own medium."""

    def __init__(self, store: MemoryStore | SqliteStore) -> None:
        self._store = store

    async def open(self) -> StateStore:
        return self._store

    def kill(self) -> None: ...

    def close(self) -> None:
        if isinstance(self._store, SqliteStore):
            self._store.close()


class Message(NamedTuple):
    seq: int
    data: bytes


class Torn(StoreError):
    """The coordinator was killed in the middle of a save."""


class Stream:
    """The log of one shard at the broker: what `LogStore` uses of JetStream."""

    def __init__(self, rng: RandomSource, fails: Callable[[], bool]) -> None:
        self._rng = rng
        self._fails = fails
        self._messages: list[Message] = []
        self._last = 0

    async def publish(
        self, subject: str, payload: bytes, timeout: float, stream: str, headers: dict[str, str]
    ) -> Message:
        fails = self._fails()
        if fails and self._rng.randbelow(2):
            raise NatsTimeout
        if list(headers.values()) != [str(self._last)]:
            raise APIError(code=400, description="wrong last sequence", err_code=_WRONG_LAST_SEQUENCE)
        self._last += 1
        self._messages.append(Message(self._last, payload))
        if fails:  # the confirmation is lost
            raise NatsTimeout
        return self._messages[-1]

    async def get_msg(self, stream: str, seq: int, subject: str, next: bool) -> Message:
        index = bisect_left(self._messages, seq, key=lambda message: message.seq)
        if index == len(self._messages):
            raise NotFoundError
        return self._messages[index]

    async def get_last_msg(self, stream: str, subject: str) -> Message:
        return self._messages[-1]

    async def purge_stream(self, stream: str, seq: int, subject: str) -> None:
        self._messages = [message for message in self._messages if message.seq >= seq]


class Owner:
    """The stream, as one coordinator sees it."""

    def __init__(self, stream: Stream) -> None:
        self.get_msg, self.get_last_msg, self.purge_stream = stream.get_msg, stream.get_last_msg, stream.purge_stream
        self._publish = stream.publish
        self.appends_left: int | None = None  # it was killed: so many more parts of a record arrive

    async def publish(self, *args: Any, **headers: Any) -> Message:
        if self.appends_left is not None:
            if not self.appends_left:
                raise Torn("killed")
            self.appends_left -= 1
        return await self._publish(*args, **headers)


class SimulatedLogStore(LogStore):
    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """The stream answers at once, so the work never waits."""
        try:
            work.send(None)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        raise StoreError("the stream has not answered")


class LogMedia:
    """Each coordinator takes the log over from the one before it."""

    def __init__(self, rng: RandomSource, fails: Callable[[], bool], wall_clock: Callable[[], float]) -> None:
        self._rng = rng
        self._stream = Stream(rng, fails)
        self._wall_clock = wall_clock
        self._owners = 0

    async def open(self) -> StateStore:
        self._owners += 1
        self._owner = Owner(self._stream)
        store = SimulatedLogStore(
            self._owner,  # type: ignore[arg-type]
            0,
            f"owner {self._owners}",
            lambda: True,
            self._wall_clock,
        )
        await store.take_over()
        return store

    def kill(self) -> None:
        self._owner.appends_left = self._rng.randbelow(3)

    def close(self) -> None: ...


def media(kind: str, rng: RandomSource, fails: Callable[[], bool], wall_clock: Callable[[], float]) -> Media:
    if kind == "log":
        return LogMedia(rng, fails, wall_clock)
    return Kept(MemoryStore(wall_clock) if kind == "memory" else SqliteStore(None, wall_clock))
