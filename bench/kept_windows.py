"""A million (counter, window) pairs at the coordinator: memory, disk, the time to load them, and what an edge costs."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from bench import figures
from countless.core.periods.window import WindowRule
from countless.server.connection import Connection
from countless.server.kinds.counter import WindowedCounter
from countless.server.sessions.periodic import PeriodicFields, WindowFields
from countless.server.settings import Config, Settings
from countless.server.site_server import SiteServer
from countless.server.storage.rows import Changes, Rows, alone
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import VERSION, DownItem, Hello, Join, Leave
from countless.wire.keys import ALL, COUNTER, Key
from tools.tables import Table

PAIRS = 1_000_000
FIRST = 490_000
SETTINGS = Settings(max_counters=1_000_000, max_counters_per_site=1_000_000, label_cap=1_000_000)


class Nowhere:
    def send(self, items: list[DownItem]) -> None: ...

    def close(self, code: int, reason: str) -> None: ...


class Clock:
    period = FIRST

    def __call__(self) -> float:
        return self.period * 3600.0 + 1


def series(number: int) -> str:
    return f'requests{{route="/api/v1/items/{number:06}"}}'


def fill(path: Path, counters: int, windows: int) -> None:
    store, rule = SqliteStore(path), WindowRule("hour", keep=windows)
    fields = PeriodicFields(largest=windows * 10**6)
    for number in range(counters):
        name = series(number)
        config = Config(windows=rule, label_cap=10**6)
        rows: Rows = {Key(COUNTER, name, "hour", ALL): {"spec": alone(config), "windows": alone(fields)}}
        for each in range(windows):
            key = Key(COUNTER, name, "hour", FIRST - windows + each)
            rows[key] = {"window": alone(WindowFields(10**6 + each))}
        store.save(Changes(rows))
    store.checkpoint()
    store.close()


@asynccontextmanager
async def running(path: Path, clock: Clock) -> AsyncIterator[tuple[SiteServer, float]]:
    store = SqliteStore(path)
    start = process_time()
    server = SiteServer(store, SETTINGS, wall_clock=clock)
    took = process_time() - start
    task = asyncio.create_task(server.run())
    await server.flush()
    yield server, took
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await server.stop()
    store.close()


async def edge(server: SiteServer, clock: Clock, counters: int) -> float:
    """Seconds in which one site leaves the window of every counter, and all are closed, dropped and saved."""
    connection: Connection = Nowhere()
    session = await server.on_hello(connection, Hello(VERSION, "web", 1 << 60))
    assert session is not None
    joins = [Join(f"{series(number)}@hour:{FIRST}", 0, 10) for number in range(counters)]
    server.on_frame(session, connection, list(joins), 0)
    await server.flush()
    clock.period += 1
    start = process_time()
    server.on_frame(session, connection, [Leave(*join) for join in joins], 0)
    server.tick()
    await server.flush()
    took = process_time() - start
    assert not any(isinstance(counter, WindowedCounter) and counter.open for counter in server.counters.values())
    return took


async def measure(counters: int, windows: int) -> tuple[str, ...]:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "state"
        fill(path, counters, windows)
        on_disk = sum(file.stat().st_size for file in path.parent.iterdir()) / counters / windows
        gc.collect()
        tracemalloc.start()
        async with running(path, Clock()):
            gc.collect()
            in_memory = tracemalloc.get_traced_memory()[0] / counters / windows
            tracemalloc.stop()
        clock = Clock()
        async with running(path, clock) as (server, loaded):
            at_edge = await edge(server, clock, counters)
    figures.add(
        f"{windows} windows each",
        {
            "bytes of one in memory": in_memory,
            "bytes of one on disk": on_disk,
            "processor s of loading all": loaded,
            "processor µs of an edge, for each counter": at_edge / counters * 1e6,
        },
    )
    return (
        f"{counters:,} counters, {windows:,} windows each",
        f"{in_memory:.0f} bytes",
        f"{on_disk:.0f} bytes",
        f"{loaded:.1f} s",
        f"{at_edge / counters * 1e6:.0f} µs",
    )


def main() -> Iterator[Table]:
    rows = [asyncio.run(measure(PAIRS // windows, windows)) for windows in (1000, 100)]
    head = ("10^6 closed windows", "memory of each", "disk for each", "loading all", "an edge, for each counter")
    yield Table("windows-kept", head, rows)
