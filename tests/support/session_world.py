"""Production sessions and a site server on virtual clocks: what the worlds of windows and of budgets have in common.

Each site and the coordinator has a wall clock of its own. Connections keep the order of frames, and lose what is under
way when they end.
"""

import asyncio
from collections.abc import Generator
from itertools import count
from typing import Any, Generic, TypeVar

from countless.client.session.protocol import SiteSession
from countless.core.calendar import Calendar
from countless.errors import ProtocolError
from countless.server.sessions.session_table import Session
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import StateStore
from countless.wire.frames import Hello, decode_up, encode_frames
from support.budget_world import Broken
from support.site_server import FakeConnection

CALENDAR = Calendar("minute")
START_S = 30_000_000 * 60.0
SILENT_AFTER_S = 20.0
STEP_S = 0.01  # longer than a session lingers before it sends


class Stream:
    """A session, on one connection after another."""

    session: SiteSession

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
        raise NotImplementedError


Site = TypeVar("Site", bound=Stream)


class SessionWorld(Generic[Site]):
    settings: type[Settings] = Settings

    def __init__(self) -> None:
        self.time = 0.0
        self.offset = 0.0  # of the coordinator's wall clock
        self.incarnations = count(1)
        self.store = MemoryStore()
        self.sites: list[Site] = []

    def clock(self) -> float:
        return self.time

    def wall_clock(self) -> float:
        return START_S + self.time + self.offset

    def run_server(self, store: StateStore, **settings: Any) -> None:
        self.server = SiteServer(
            store, self.settings(silent_after=SILENT_AFTER_S, **settings), self.clock, self.wall_clock
        )
        self._running = asyncio.create_task(self.server.run())

    async def kill_server(self) -> None:
        """What was not saved yet is lost, and so is every connection."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self.server.stop_threads()
        for site in self.sites:
            site.disconnect()

    async def deliver_up(self, site: Site) -> None:
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

    def deliver_down(self, site: Site) -> None:
        """The first item that is on its way to a site."""
        if site.connection is not None and site.connection.received:
            site.receive(list(encode_frames([site.connection.received.pop(0)])))

    def lose_connection(self, site: Site) -> None:
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
