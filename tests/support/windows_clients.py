"""Clients that count in windows and a site server, the production classes, for tests that say what happens when.

Random runs are those of the fault simulator.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from threading import Lock, RLock
from typing import Any, cast

from countless.client.kinds.counter import CounterMember
from countless.client.local_counter import LocalCounter
from countless.client.local_windows import LocalCounterWindows, spread_of
from countless.client.session.protocol import SiteSession
from countless.client.surroundings import ClientSurroundings
from countless.client.transport.base import ConnectionLost
from countless.core.messages import SiteId, UpMessage
from countless.core.site import Site
from countless.randomness import SeededRandom
from countless.server.kinds.counter import WindowedCounter
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import Changes, StateStore
from countless.wire.keys import ALL, COUNTER, Key, calendar_text
from support.budget_world import Broken
from support.session_world import CALENDAR, START_S, STEP_S, SessionWorld, Stream

SERIES = ("hits",)


class Process(Stream):
    """A process that counts."""

    def __init__(self, world: "World", site: str) -> None:
        site_id = SiteId(site, next(world.incarnations))
        self.lock = RLock()
        self.world = world
        self.session = SiteSession(site_id, self.lock, lambda: None, ClientSurroundings(world.clock))
        self.disconnect()
        self.site = site
        self.offset = 0.0  # of its wall clock
        self.counters: dict[Key, LocalCounter] = {}
        self.members: dict[Key, CounterMember] = {}
        self.windows = {series: self._windows(series, site_id) for series in SERIES}

    def _windows(self, series: str, site_id: SiteId) -> LocalCounterWindows:
        spread = spread_of(site_id, series)
        key = Key(COUNTER, series, calendar_text(CALENDAR), ALL)
        windows = LocalCounterWindows(key, spread, self.lock, self.wall_clock, self._new, self._remove)
        self.session.add_windows(windows)
        return windows

    def wall_clock(self) -> float:
        return START_S + self.world.time + self.offset

    def _new(self, key: Key) -> LocalCounter:
        site = Site(str(key), self.session.site_id, SeededRandom(1))
        counter = self.counters[key] = LocalCounter(site, self.lock, partial(self._deliver, key))
        self.members[key] = CounterMember(key, counter)
        self.session.add(self.members[key])
        return counter

    def _remove(self, key: Key) -> None:
        del self.counters[key]

    def _deliver(self, key: Key, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.members[key].queue(messages)

    def add(self, series: str, n: int) -> None:
        self.windows[series].add(n)

    def receive(self, frames: list[bytes]) -> None:
        if self.steps is None:
            return
        try:
            self.steps.send(frames)
        except (ConnectionLost, StopIteration):
            self.world.lose_connection(self)


class Disk:
    """The store, as one coordinator sees it. When that is killed, a save that its thread has begun has no effect."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._lock = Lock()
        self._killed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def save(self, changes: Changes) -> None:
        with self._lock:
            if not self._killed:
                self._store.save(changes)

    def kill(self) -> None:
        with self._lock:
            self._killed = True


class World(SessionWorld[Process]):
    def __init__(self, sites: int) -> None:
        super().__init__()
        self.sites = [Process(self, f"site-{number}") for number in range(sites)]

    def start_server(self) -> None:
        self.disk = Disk(self.store)
        self.run_server(cast(StateStore, self.disk))

    async def kill_server(self) -> None:
        self.disk.kill()
        await super().kill_server()

    async def deliver_all(self) -> None:
        idle = 0  # a session lingers before it sends
        for _ in range(10_000):
            self.time += STEP_S
            idle += 1
            for stream in self.sites:
                if stream.steps is None:
                    stream.connect()
                stream.receive([])
                while stream.up:
                    await self.deliver_up(stream)
                    idle = 0
            await self.server.flush()
            for stream in self.sites:
                while stream.connection is not None and stream.connection.received:
                    self.deliver_down(stream)
            if idle == 2:
                return
        raise Broken("messages are sent without end")

    def counter(self, series: str) -> WindowedCounter | None:
        counter = self.server.counters.get(series)
        if counter is not None and not isinstance(counter, WindowedCounter):
            raise Broken(f"{series} has no windows")
        return counter


@asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    world.start_server()
    try:
        yield world
    finally:
        await world.kill_server()
