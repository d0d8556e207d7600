"""Clients that count in windows and a site server, the production classes, for tests that say what happens when.

Each process and the coordinator has a wall clock of its own. Connections keep the order of frames, and lose what is
under way when they end. Random runs are those of the fault simulator.
"""

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from itertools import count
from threading import Lock, RLock
from typing import Any, cast

from countless.client.local_counter import LocalCounter
from countless.client.local_windows import LocalWindows, spread_of
from countless.client.session.protocol import SiteSession
from countless.client.transport.base import ConnectionLost
from countless.core.calendar import Calendar
from countless.core.messages import SiteId, UpMessage
from countless.core.site import Site
from countless.errors import ProtocolError
from countless.randomness import SeededRandom
from countless.server.sessions.session_table import Session
from countless.server.sessions.site_server import SiteServer
from countless.server.sessions.windows.windowed_counter import WindowedCounter
from countless.server.settings import Settings
from countless.server.storage.base import Changes, StateStore
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import Hello, decode_up, encode_frames
from support.site_server import FakeConnection

CALENDAR = Calendar("minute")
SERIES = ("hits",)
START_S = 30_000_000 * 60.0
SILENT_AFTER_S = 20.0
STEP_S = 0.01  # longer than a session lingers before it sends


class Broken(AssertionError):
    """Something that must hold does not."""


class Stream:
    """A session, on one connection after another."""

    def __init__(self, world: "World", session: SiteSession) -> None:
        self.world = world
        self.session = session
        self.disconnect()

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


class Process(Stream):
    """A process that counts."""

    def __init__(self, world: "World", site: str) -> None:
        site_id = SiteId(site, next(world.incarnations))
        self.lock = RLock()
        super().__init__(world, SiteSession(site_id, self.lock, lambda: None, world.clock))
        self.site = site
        self.offset = 0.0  # of its wall clock
        self.counters: dict[str, LocalCounter] = {}
        self.windows = {series: self._windows(series, site_id) for series in SERIES}

    def _windows(self, series: str, site_id: SiteId) -> LocalWindows:
        spread = spread_of(site_id, series)
        windows = LocalWindows(series, CALENDAR, spread, self.lock, self.wall_clock, self._new, self._remove)
        self.session.add_windows(series, windows)
        return windows

    def wall_clock(self) -> float:
        return START_S + self.world.time + self.offset

    def _new(self, name: str) -> LocalCounter:
        counter = LocalCounter(Site(name, self.session.site_id, SeededRandom(1)), self.lock, self._deliver)
        self.counters[name] = counter
        self.session.add_counter(name, counter)
        return counter

    def _remove(self, name: str) -> None:
        del self.counters[name]

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.session.queue(site.counter, messages)

    def add(self, series: str, n: int) -> None:
        self.windows[series].add(n)


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
        self.processes = [Process(self, f"site-{number}") for number in range(sites)]

    def clock(self) -> float:
        return self.time

    def wall_clock(self) -> float:
        return START_S + self.time + self.offset

    # The coordinator

    def start_server(self) -> None:
        settings = Settings(silent_after=SILENT_AFTER_S)
        self.disk = Disk(self.store)
        self.server = SiteServer(cast(StateStore, self.disk), settings, self.clock, self.wall_clock)
        self._running = asyncio.create_task(self.server.run())

    async def kill_server(self) -> None:
        """What was not saved yet is lost, and so is every connection."""
        self.disk.kill()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self.server.planner.stop()
        for stream in self.processes:
            stream.disconnect()

    async def deliver_up(self, stream: Stream) -> None:
        """The first frame that is on its way from a process."""
        items = decode_up(stream.up.pop(0))
        if isinstance(items[0], Hello):
            stream.connection = FakeConnection()
            stream.served = await self.server.on_hello(stream.connection, items[0])
        elif stream.served is not None and stream.connection is not None:
            try:
                self.server.on_frame(stream.served, stream.connection, items, 10)
            except ProtocolError as error:
                raise Broken(f"an honest site has broken the protocol: {error}") from error
        await self.server.flush()

    def deliver_down(self, stream: Stream) -> None:
        """The first item that is on its way to a process."""
        if stream.connection is not None and stream.connection.received:
            stream.receive(list(encode_frames([stream.connection.received.pop(0)])))

    def lose_connection(self, stream: Stream) -> None:
        if stream.served is not None and stream.connection is not None:
            self.server.on_disconnect(stream.served, stream.connection)
        stream.disconnect()

    async def pass_time(self, seconds: float) -> None:
        self.time += seconds
        self.server.tick()
        await self.server.flush()
        for stream in self.processes:
            if stream.connection is not None and stream.connection.close_reason is not None:
                self.lose_connection(stream)
            stream.receive([])

    async def deliver_all(self) -> None:
        idle = 0  # a session lingers before it sends
        for _ in range(10_000):
            self.time += STEP_S
            idle += 1
            for stream in self.processes:
                if stream.steps is None:
                    stream.connect()
                stream.receive([])
                while stream.up:
                    await self.deliver_up(stream)
                    idle = 0
            await self.server.flush()
            for stream in self.processes:
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
