"""Clients that count in windows and a site server, all of them the production classes, on clocks that jump.

Each process and the coordinator has a wall clock of its own. Connections keep the order of frames, and lose what is
under way when they end. Processes and the coordinator are killed between any two steps. What a process counted is in
memory, or in a file that the next process finds.

| checked                                        | when                                                               |
|------------------------------------------------|--------------------------------------------------------------------|
| an event is in the window of its site's clock, | after every event; the next one that is not finished, if that      |
| and in no other                                | window is                                                          |
| nothing is lost and nothing counted twice      | at the end: the coordinator's windows, and what it has rejected,   |
|                                                | are all events of each window                                      |
| no window has more than its events             | whenever time passes                                               |
| a closed window has all events of all sites    | at the end, unless a process that kept counts in memory was killed |
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Generator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from itertools import count
from pathlib import Path
from random import Random
from threading import Lock, RLock
from typing import Any, cast

from countless.client.durable.count_file import CountFile
from countless.client.durable.recovery import OrphanedCounter
from countless.client.durable.state import DurableCounter
from countless.client.local_counter import LocalCounter
from countless.client.local_windows import LocalWindows, spread_of
from countless.client.session.protocol import SessionRetired, SiteSession
from countless.client.transport.base import ConnectionLost
from countless.core.calendar import Calendar
from countless.core.messages import SiteId, UpMessage
from countless.core.site import Site
from countless.core.windows.site import BELIEVED_AFTER_S
from countless.core.windows.window import WindowState
from countless.errors import CountlessError, ProtocolError
from countless.randomness import SeededRandom
from countless.server.sessions.session_table import Session
from countless.server.sessions.site_server import SiteServer
from countless.server.sessions.windows import WindowedCounter
from countless.server.settings import Settings
from countless.server.storage.base import Changes, StateStore
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import Hello, decode_up, encode_frames
from countless.wire.windows import parse_window, window_name
from support.site_server import FakeConnection

CALENDAR = Calendar("minute")
SERIES = ("hits", 'hits{route="/a"}')
START_S = 30_000_000 * 60.0
DAY_S = 86_400.0
SILENT_AFTER_S = 20.0
STEP_S = 0.01  # longer than a session lingers before it sends
WEIGHTS = {
    "count": 400,
    "exchange": 380,
    "time": 100,
    "site's clock": 15,
    "coordinator's clock": 5,
    "lose": 25,
    "kill": 6,
    "kill coordinator": 8,
}


class Broken(AssertionError):
    """Something that must hold does not."""


class WatchedWindows(LocalWindows):
    """Windows that say which of them is the first that is not finished."""

    __slots__ = ("not_finished",)
    not_finished: int

    def tick(self, monotonic: float) -> tuple[str | None, list[str]]:
        announced, finished = super().tick(monotonic)
        for name in finished:
            window = parse_window(name)
            if window is None or window.period < self.not_finished:
                raise Broken(f"{name} is finished after {self.not_finished}")
            self.not_finished = window.period + 1
        return announced, finished


class Stream:
    """A session, on one connection after another."""

    def __init__(self, world: "World", session: SiteSession, file: CountFile | None) -> None:
        self.world = world
        self.session = session
        self.file = file
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
        except SessionRetired as retired:
            self.session.renew(retired, self._new_incarnation)
            self.connect()
        except (ConnectionLost, StopIteration):
            self.world.lose_connection(self)

    def _new_incarnation(self, site_id: SiteId) -> AbstractContextManager[None]:
        return nullcontext() if self.file is None else self.file.new_incarnation(site_id.incarnation)


class Process(Stream):
    """A process that counts. `directory`: where its counts are; None: in memory."""

    def __init__(self, world: "World", site: str, directory: Path | None) -> None:
        site_id = SiteId(site, next(world.incarnations))
        file = None if directory is None else CountFile.create(directory, site_id)
        self.lock = RLock()
        super().__init__(world, SiteSession(site_id, self.lock, lambda: None, world.clock), file)
        self.site = site
        self.offset = 0.0  # of its wall clock
        self.counters: dict[str, LocalCounter] = {}
        self.windows = {series: self._windows(series, site_id) for series in SERIES}

    def _windows(self, series: str, site_id: SiteId) -> WatchedWindows:
        windows = WatchedWindows(
            series, CALENDAR, spread_of(site_id, series), self.lock, self.wall_clock, self._new, self._remove
        )
        windows.not_finished = 0
        self.session.add_windows(series, windows)
        return windows

    def wall_clock(self) -> float:
        return START_S + self.world.time + self.offset

    def _new(self, name: str) -> LocalCounter:
        site = Site(name, self.session.site_id, SeededRandom(1))
        if self.file is None:
            counter = LocalCounter(site, self.lock, self._deliver)
        else:
            counter = DurableCounter(site, self.lock, self._deliver, self.file.allocate(name))
        if name in self.counters:
            raise Broken(f"{name} is counted again")
        self.counters[name] = counter
        self.session.add_counter(name, counter)
        return counter

    def _remove(self, name: str) -> None:
        del self.counters[name]
        if self.file is not None:
            self.file.free(name)

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.session.queue(site.counter, messages)

    def add(self, series: str, n: int) -> None:
        windows = self.windows[series]
        period = max(CALENDAR.period_at(self.wall_clock()), windows.not_finished)
        name = window_name(series, CALENDAR, period)
        before = {each: counter.count for each, counter in self.counters.items()}
        windows.add(n)
        expected = {**before, name: before.get(name, 0) + n}
        if {each: counter.count for each, counter in self.counters.items()} != expected:
            raise Broken(f"{n} events of {name} have changed {before} to something else")
        self.world.events[series, period] += n

    def close(self) -> None:
        with self.lock:
            for windows in self.windows.values():
                windows.close()
            for counter in self.counters.values():
                if counter.open:
                    counter.close()
            self.session.leave()


class Recovery(Stream):
    """Another process delivers what one that was killed has left in its file."""

    def __init__(self, world: "World", file: CountFile) -> None:
        session = SiteSession(file.site_id, RLock(), lambda: None, world.clock)
        super().__init__(world, session, file)
        self.windows = [_key(name) for name in file.records]
        for name, record in file.records.items():
            session.add_counter(name, OrphanedCounter(name, record))
        session.has_work = True
        session.leave()


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
    def __init__(self, sites: int, seed: int, weights: dict[str, int], directory: Path | None) -> None:
        self.rng = Random(seed)  # noqa: S311
        self.weights = WEIGHTS | weights
        self.directory = directory
        self.time = 0.0
        self.offset = 0.0  # of the coordinator's wall clock
        self.incarnations = count(1)
        self.events: Counter[tuple[str, int]] = Counter()  # by series and window, in truth
        self.lost: set[tuple[str, int]] = set()  # a process that kept counts of these in memory was killed
        self.store = MemoryStore()
        self.processes = [Process(self, f"site-{number}", directory) for number in range(sites)]
        self.recoveries: list[Recovery] = []

    @property
    def streams(self) -> list[Stream]:
        return [*self.processes, *self.recoveries]

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
        for stream in self.streams:
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
        if self.rng.random() < 0.8:
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
        for stream in self.streams:
            if stream.connection is not None and stream.connection.close_reason is not None:
                self.lose_connection(stream)
            stream.receive([])

    # Steps

    async def step(self) -> None:
        rng, process = self.rng, self.rng.choice(self.processes)
        (action,) = rng.choices(list(self.weights), list(self.weights.values()))
        if action == "count":
            process.add(rng.choice(SERIES), rng.choice((1, 2, 50)))
        elif action == "exchange":
            await self.exchange(rng.choice(self.streams))
        elif action == "time":
            await self.pass_time(rng.choice((1.0, 5.0, 25.0, 61.0)))
            self.check()
        elif action == "site's clock":
            jumps = (0.0, 0.0, -61.0, 61.0, 122.0, rng.uniform(-200.0, 200.0), 1000.0, 800 * DAY_S)
            process.offset = rng.choice(jumps)
        elif action == "coordinator's clock":
            self.offset = rng.choice((0.0, 0.0, -61.0, -122.0, rng.uniform(-400.0, 400.0)))
        elif action == "lose":
            self.lose_connection(rng.choice(self.streams))
        elif action == "kill":
            self.kill(process)
        elif action == "kill coordinator":
            await self.kill_server()
            self.start_server()
        self.time += STEP_S
        for stream in self.streams:
            stream.receive([])

    def kill(self, process: Process) -> None:
        """The next process of its site finds its file."""
        self.lose_connection(process)
        if process.file is None:
            self.lost.update(map(_key, process.counters))
        self.processes[self.processes.index(process)] = Process(self, process.site, self.directory)
        if process.file is not None and process.file.path is not None:
            process.file.release()
            orphan = CountFile.open_orphan(process.file.path)
            if orphan is not None:
                self.recoveries.append(Recovery(self, orphan))

    async def exchange(self, stream: Stream) -> None:
        """Deliver some of what is on its way from and to a process; connect it if it is not."""
        if stream.steps is None:
            stream.connect()
        for _ in range(self.rng.choice((1, 3, 10))):
            if stream.up and self.rng.random() < 0.6:
                await self.deliver_up(stream)
            else:
                self.deliver_down(stream)
        self.end_recoveries()

    def end_recoveries(self) -> None:
        """A file with a window that the coordinator rejects, because of a wrong clock, waits for the next process."""
        for recovery in [each for each in self.recoveries if each.session.done]:
            self.recoveries.remove(recovery)
            if not recovery.session.delivered:
                self.lost.update(recovery.windows)

    async def deliver_all(self) -> None:
        idle = 0  # a session lingers before it sends
        for _ in range(10_000):
            self.time += STEP_S
            idle += 1
            for stream in self.streams:
                if stream.steps is None:
                    stream.connect()
                stream.receive([])
                while stream.up:
                    await self.deliver_up(stream)
                    idle = 0
            await self.server.flush()
            for stream in self.streams:
                while stream.connection is not None and stream.connection.received:
                    self.deliver_down(stream)
            if idle == 2:
                return
        raise Broken("messages are sent without end")

    # Checks

    def counter(self, series: str) -> WindowedCounter | None:
        counter = self.server.counters.get(series)
        if counter is not None and not isinstance(counter, WindowedCounter):
            raise Broken(f"{series} has no windows")
        return counter

    def counted(self, series: str, period: int) -> int:
        """What the coordinator knows of a window."""
        counter = self.counter(series)
        if counter is None:
            return 0
        return counter.open[period].known_total if period in counter.open else counter.closed.get(period) or 0

    def check(self) -> None:
        for (series, period), events in self.events.items():
            counter = self.counter(series)
            window = None if counter is None else counter.window(period)
            if window is not None and window.lower > events:
                raise Broken(f"at least {window.lower} in window {period} of {series}, in truth {events}")

    def check_closed(self) -> None:
        """A window that is closed has all its events; but a coordinator cannot know what it was never told."""
        for (series, period), events in self.events.items():
            if (series, period) in self.lost:
                continue
            counter = self.counter(series)
            window = None if counter is None else counter.window(period)
            if window is not None and window.state is WindowState.CLOSED and window.lower != events:
                raise Broken(f"window {period} of {series} is closed with {window.lower}, in truth {events}")

    async def settle(self) -> None:
        """All clocks are right, and nothing goes wrong any more. Time passes until every window is finished."""
        self.offset = 0.0
        for process in self.processes:
            process.offset = 0.0
        await self.deliver_all()
        for _ in range(int(2 * BELIEVED_AFTER_S / 50) + 6):
            await self.pass_time(50.0)
            await self.deliver_all()
        self.end_recoveries()
        self.check()
        self.check_closed()
        self._check_finished()

    def _check_finished(self) -> None:
        present = CALENDAR.period_at(self.wall_clock())
        for process in self.processes:
            for name in process.counters:
                window = parse_window(name)
                if window is None or window.period < present:
                    raise Broken(f"{name} is not finished at {process.site}")

    async def close(self) -> None:
        """All processes are closed. What the coordinator has, and what could not leave, are all events."""
        for process in self.processes:
            process.close()
        await self.deliver_all()
        kept: Counter[tuple[str, int]] = Counter()
        for process in self.processes:
            if not process.session.done:
                raise Broken(f"{process.site} has not left")
            for name, counter in process.counters.items():
                kept[_key(name)] += counter.count
        for key, events in self.events.items():
            # It may know a window that could not leave, because it has rejected an earlier one.
            known, least = self.counted(*key), 0 if key in self.lost else events - kept[key]
            if not least <= known <= events:
                raise Broken(f"{known} known and {kept[key]} not delivered of {key}, in truth {events}")
        self.check()
        self.check_closed()


def _key(name: str) -> tuple[str, int]:
    window = parse_window(name)
    if window is None:
        raise Broken(f"{name} is not a window")
    return window.series, window.period


@asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    world.start_server()
    try:
        yield world
    finally:
        await world.kill_server()


async def play(
    seed: int, directory: Path | None, steps: int = 400, sites: int = 3, weights: dict[str, int] | None = None
) -> str | None:
    """One random run; what was broken in it."""
    own = None if directory is None else directory / str(seed)
    async with running(World(sites, seed, weights or {}, own)) as world:
        try:
            for _ in range(steps):
                await world.step()
            await world.settle()
            await world.close()
        except Broken as broken:
            return f"seed {seed}: {broken}"
        except CountlessError as error:
            return f"seed {seed}: {error!r}"
    return None
