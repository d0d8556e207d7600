"""The coordinator's process: it is started, killed and started again, and what it has not saved is lost."""

import asyncio
from collections.abc import Callable

from countless.client.transport.base import ConnectionLost
from countless.core.budget.rule import BudgetRule
from countless.server.sessions.planner import Planner
from countless.server.sessions.site_server import SiteServer
from countless.server.settings import Settings
from countless.server.storage.base import StoreError
from countless.simulator.network import Link
from countless.simulator.stores import Disk, Media
from countless.simulator.virtual_loop import InlineExecutor
from countless.wire.frames import Hello, decode_up

TICK_S = 2.0


class CoordinatorProcess:
    def __init__(
        self, media: Media, settings: Settings, is_full: Callable[[], bool], wall_clock: Callable[[], float]
    ) -> None:
        self.up = False
        self._media = media
        self._settings = settings
        self._is_full = is_full
        self._wall_clock = wall_clock
        self._links: list[Link] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._disk = Disk(await self._media.open(), self._is_full)
        self.server = SiteServer(self._disk, self._settings, loop.time, self._wall_clock)
        self.server.planner = Planner(InlineExecutor())
        self._tasks = [loop.create_task(self.server.run()), loop.create_task(self._tick())]
        self.up = True

    async def kill(self) -> None:
        if not self.up:
            return
        self.up = False
        self._disk.kill()
        self._media.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links:
            link.kill_server()
        self._links = []

    def create_budgets(self, rules: dict[str, BudgetRule]) -> None:
        for name, rule in rules.items():
            self.server.budgets.create(name, rule)

    def accept(self, link: Link) -> None:
        if not self.up:
            raise ConnectionLost("no coordinator")
        self._links.append(link)
        self._tasks.append(asyncio.get_running_loop().create_task(self._serve(self.server, link)))

    async def _serve(self, server: SiteServer, link: Link) -> None:
        """As `server/http/websocket.py` does it; but whatever an honest client sends must be accepted."""
        frame = await link.arrived.get()
        if frame is None:
            return None
        hello, *rest = decode_up(frame)
        if not isinstance(hello, Hello):
            raise TypeError(hello)
        try:
            session = await server.on_hello(link, hello)
        except StoreError as error:
            return link.close(1013, str(error))
        if session is None:
            return None
        try:
            server.on_frame(session, link, rest, len(frame))
            while (frame := await link.arrived.get()) is not None:
                server.on_frame(session, link, decode_up(frame), len(frame))
        finally:
            if self.server is server and self.up:
                server.on_disconnect(session, link)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.server.tick()
