"""A site server without sockets or a clock: connections are lists, time is a number that tests advance."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import time
from typing import Any

from countless.server.sessions.session_table import Session
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import StateStore
from countless.server.tuning import TUNING, Tuning
from countless.wire.frames import VERSION, DownItem, Hello, UpItem


class FakeConnection:
    def __init__(self) -> None:
        self.received: list[DownItem] = []
        self.close_reason: str | None = None

    def send(self, items: list[DownItem]) -> None:
        self.received += items

    def close(self, code: int, reason: str) -> None:
        self.close_reason = reason


class SiteServerHarness:
    def __init__(
        self, store: StateStore, wall_clock: Callable[[], float] = time, tuning: Tuning = TUNING, **settings: Any
    ) -> None:
        self.time = 0.0
        self.store = store
        self.server = SiteServer(store, Settings(**settings), lambda: self.time, wall_clock, tuning)

    async def connect(self, site: str, incarnation: int = 1) -> tuple[Session, FakeConnection]:
        connection = FakeConnection()
        session = await self.server.on_hello(connection, Hello(VERSION, site, incarnation))
        assert session is not None
        return session, connection

    async def send(self, session: Session, connection: FakeConnection, *items: UpItem) -> list[DownItem]:
        """Returns what the connection received once the effects of the items were saved."""
        connection.received.clear()
        self.server.on_frame(session, connection, list(items), 10)
        await self.server.flush()
        return list(connection.received)

    def tracker(self, text: str) -> Any:
        """Where sites are counted that use this name in frames."""
        return next(kind.trackers[text] for kind in self.server._counted if text in kind.trackers)

    async def advance(self, seconds: float) -> None:
        self.time += seconds
        self.server.tick()
        await self.server.flush()


@asynccontextmanager
async def site_server(store: StateStore | None = None, **settings: Any) -> AsyncIterator[SiteServerHarness]:
    """A running site server. With the store of an earlier one it continues from there, like a restarted process."""
    harness = SiteServerHarness(store or MemoryStore(), **settings)
    task = asyncio.create_task(harness.server.run())
    try:
        yield harness
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await harness.server.stop()
