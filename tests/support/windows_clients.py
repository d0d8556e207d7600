"""Clients that count in windows and a site server, the production classes, for tests that say what happens when.

Each site and the coordinator has a wall clock of its own. Connections keep the order of frames, and lose what is under
way when they end. Random runs are those of the fault simulator.
"""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from threading import Lock, RLock
from typing import Any, cast

from countless.client.kinds.counter import CounterMember
from countless.client.local_counter import LocalCounter
from countless.client.local_windows import LocalCounterWindows, spread_of
from countless.client.session.protocol import SiteSession
from countless.client.surroundings import ClientSurroundings
from countless.client.transport.base import ConnectionLost
from countless.core.calendar import Calendar
from countless.core.messages import SiteId, UpMessage
from countless.core.site import Site
from countless.errors import ProtocolError
from countless.randomness import SeededRandom
from countless.server.kinds.counter import WindowedCounter
from countless.server.sessions.session_table import Session
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import Changes, StateStore
from countless.wire.frames import Hello, decode_up, encode_frames
from countless.wire.keys import ALL, COUNTER, Key, calendar_text
from support.budget_world import Broken
from support.site_server import FakeConnection

CALENDAR = Calendar("minute")
START_S = 30_000_000 * 60.0
SILENT_AFTER_S = 20.0
STEP_S = 0.01  # longer than a session lingers before it sends
SERIES = ("hits",)


class Process:
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

    def disconnect(self) -> None:
        self.steps: Generator[float, list[bytes], None] | None = None
        self.up: list[bytes] = []
        self.connection: FakeConnection | None = None
        self.served: Session | None = None  # at the coordinator

    def connect(self) -> None:
        self.disconnect()
        if not self.session.done:
            self.steps = self.session.run(self.up.append, lambda: None)
            next(self.steps)

    def receive(self, frames: list[bytes]) -> None:
        """Frames, or the time that has passed."""
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


class World:
    def __init__(self, sites: int) -> None:
        self.time = 0.0
        self.offset = 0.0  # of the coordinator's wall clock
        self.incarnations = count(1)
        self.store = MemoryStore()
        self.sites = [Process(self, f"site-{number}") for number in range(sites)]

    def clock(self) -> float:
        return self.time

    def wall_clock(self) -> float:
        return START_S + self.time + self.offset

    def start_server(self) -> None:
        self.disk = Disk(self.store)
        settings = Settings(silent_after=SILENT_AFTER_S)
        self.server = SiteServer(cast(StateStore, self.disk), settings, self.clock, self.wall_clock)
        self._running = asyncio.create_task(self.server.run())

    async def kill_server(self) -> None:
        """What was not saved yet is lost, and so is every connection."""
        self.disk.kill()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self.server.stop_threads()
        for site in self.sites:
            site.disconnect()

    async def deliver_up(self, site: Process) -> None:
        """The first frame that is on its way from a site."""
        items = decode_up(site.up.pop(0))
        if isinstance(items[0], Hello):
            site.connection = FakeConnection()
            site.served = await self.server.on_hello(site.connection, items[0])
        elif site.served is not None and site.connection is not None:
            try:
                self.server.on_frame(site.served, site.connection, items, 10)
            except ProtocolError as error:
                raise Broken(f"an honest site has broken the protocol: {error}") from error
        await self.server.flush()

    def deliver_down(self, site: Process) -> None:
        """The first item that is on its way to a site."""
        if site.connection is not None and site.connection.received:
            site.receive(list(encode_frames([site.connection.received.pop(0)])))

    def lose_connection(self, site: Process) -> None:
        if site.served is not None and site.connection is not None:
            self.server.on_disconnect(site.served, site.connection)
        site.disconnect()

    async def pass_time(self, seconds: float) -> None:
        self.time += seconds
        self.server.tick()
        await self.server.flush()
        for site in self.sites:
            if site.connection is not None and site.connection.close_reason is not None:
                self.lose_connection(site)
            site.receive([])

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
