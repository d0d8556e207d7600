"""The coordinator's process: it is started, killed and started again, and what it has not saved is lost."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from countless.client.transport.base import ConnectionLost, Transport
from countless.client.transport.endpoint import Endpoint as ClientEndpoint
from countless.core.budget.rule import BudgetRule
from countless.core.random_source import RandomSource
from countless.server.http.answers.published import server_sent_events
from countless.server.http.answers.sums import answer_changes
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import UNLIMITED
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.storage.base import StoreError
from countless.server.tuning import Tuning
from countless.wire.frames import DownItem, Hello, decode_up
from countless.wire.nats_url import Broker
from simulator.network import Link, LinkTransport
from simulator.reader import OnEvent
from simulator.restore import Knowledge
from simulator.stores import Disk, Store, new_store

_PEER = "token 1"  # of all processes
TICK_S = 5.0  # as production's, a quarter of the time after which a site is silent


class BreaksDown(Protocol):
    def break_down(self, rng: RandomSource) -> None: ...


class AnyTransport(Transport, Protocol):
    @property
    def link(self) -> BreaksDown | None:
        """The present connection."""


class Endpoint(Protocol):
    """A process, as the network sees it."""

    @property
    def site(self) -> str: ...

    def is_cut(self) -> bool: ...

    def watch(self, transport: AnyTransport, items: list[DownItem]) -> None:
        """Is told what a coordinator sends, whether it arrives or not."""

    def record(self, direction: int, frame: bytes) -> None:
        """A frame is sent, `UP` or `DOWN`."""


class Service(Protocol):
    """One coordinator, or several."""

    @property
    def endpoint(self) -> ClientEndpoint | Broker: ...

    async def start(self) -> None: ...

    async def create_budgets(self, rules: dict[str, BudgetRule]) -> None: ...

    def servers(self) -> list[SiteServer]:
        """Those that may answer readers at present."""

    def trouble(self) -> str | None:
        """The part of the service that is missing."""

    def failure(self) -> str | None: ...

    @property
    def started(self) -> float:
        """The time when the current run of a coordinator began."""

    @property
    def restoring(self) -> bool:
        """The state is an older copy, and budgets wait for processes that it does not know."""

    def back_up(self) -> None: ...

    async def restore(self, pause: float) -> tuple[Knowledge, Knowledge] | None:
        """Start again with the last copy; what was known before and what the copy knows. None: nothing was done."""

    def drop_ended(self) -> None:
        """As an operator does it after a restore: forget the sites for which budgets wait in vain."""

    async def fail(self, pause: float) -> None: ...

    def turn_clock(self, jump: float) -> None: ...

    def heal(self) -> None: ...

    async def close(self) -> None: ...

    def transport(self, endpoint: Endpoint, notify: Callable[[], None]) -> AnyTransport: ...

    def watch(self, counter: str, on_event: OnEvent) -> asyncio.Task[None] | None: ...


def unowned(servers: list[SiteServer]) -> str | None:
    """All processes have tokens, so what a process that is connected has joined belongs to one."""
    sessions = [session for server in servers for session in server.sessions if session.connection is not None]
    n = sum(len(session.members) for session in sessions if session.peer == UNLIMITED)
    return f"{n} memberships belong to no token" if n else None


class Conditions(NamedTuple):
    """Under which coordinators run."""

    settings: Settings
    tuning: Tuning
    disk_is_full: Callable[[], bool]
    delay: Callable[[], float]  # of the network
    true_clock: Callable[[], float]
    new_name: Callable[[], str]  # of members of a cluster, their ownerships, and streams


class CoordinatorProcess:
    """Implements `Service`."""

    endpoint = ClientEndpoint("simulated", 1, False)

    def __init__(self, rng: RandomSource, store: str, conditions: Conditions) -> None:
        self._rng = rng
        self._conditions = conditions
        self._offset = 0.0  # of its wall clock
        self._up = False
        self._links: list[Link] = []
        self._sessions: dict[Link, Session] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._restarts: set[asyncio.Task[None]] = set()
        self._store = new_store(store, self._wall_clock)
        self._copy: Store | None = None
        self.started = 0.0
        self.restoring = False  # the state says that it is a copy

    def _wall_clock(self) -> float:
        return self._conditions.true_clock() + self._offset

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._disk = Disk(self._store, self._rng, self._conditions.disk_is_full)
        settings = replace(self._conditions.settings, after_restore=self.restoring)
        self._server = SiteServer(self._disk, settings, loop.time, self._wall_clock, self._conditions.tuning)
        self.started = loop.time()
        self._tasks = [loop.create_task(self._server.run()), loop.create_task(self._tick())]
        self._up = True

    async def create_budgets(self, rules: dict[str, BudgetRule]) -> None:
        for name, rule in rules.items():
            self._server.budgets.create(name, rule)
        await self._server.flush()

    def servers(self) -> list[SiteServer]:
        return [self._server] if self._up else []

    def trouble(self) -> str | None:
        return None if self._up else "no coordinator"

    def failure(self) -> str | None:
        """A connection that the coordinator has not closed, and does not use: the process waits for answers on it. Or a
        membership without an owner.
        """
        for link, session in self._sessions.items():
            if link.open_at_server and session.connection is not link:
                return f"the connection of {session.site_id} is open, and not used"
        return unowned(self.servers())

    async def fail(self, pause: float) -> None:
        """It is killed and started again: now, or at its next save."""
        if not self._up:
            return
        if self._rng.randbelow(2):
            await self._restart(pause)
        else:
            loop = asyncio.get_running_loop()
            self._disk.kill_at_next_save(lambda: self._restarts.add(loop.create_task(self._restart(pause))))

    def back_up(self) -> None:
        self._copy = self._store.copy()

    async def restore(self, pause: float) -> tuple[Knowledge, Knowledge] | None:
        if not self._up or self._copy is None:
            return None
        before = Knowledge.of(self._server)
        await self._kill()
        self._store, self.restoring = self._copy.copy(), True
        await asyncio.sleep(pause)
        await self.start()
        return before, Knowledge.of(self._server)

    def drop_ended(self) -> None:
        wait = self._server.settings.wait_after_restore
        if wait is None or asyncio.get_running_loop().time() < self.started + wait:
            return
        budgets = self._server.budgets.by_name.values()
        periods = [each.coordinator for budget in budgets for each in budget.periods.values()]
        for site in {str(site_id.site) for each in periods for site_id in each.unheard}:
            self._server.drop_site(site)

    async def _restart(self, pause: float) -> None:
        await self._kill()
        await asyncio.sleep(pause)
        await self.start()

    def turn_clock(self, jump: float) -> None:
        self._offset = jump

    def heal(self) -> None:
        self._offset = 0.0

    async def close(self) -> None:
        for restart in self._restarts:
            restart.cancel()
        if self._up:
            await self._kill()

    async def _kill(self) -> None:
        self._up = False
        self._disk.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links:
            link.kill_server()
        self._links = []

    def transport(self, endpoint: Endpoint, notify: Callable[[], None]) -> LinkTransport:
        def connect(transport: LinkTransport) -> Link:
            if endpoint.is_cut():
                raise ConnectionLost("the network is cut")
            if not self._up:
                raise ConnectionLost("no coordinator")
            watch = partial(endpoint.watch, transport)
            link = Link(
                transport, self._conditions.delay, watch, endpoint.record, self._conditions.tuning.max_frame_bytes
            )
            self._links.append(link)
            self._tasks.append(asyncio.get_running_loop().create_task(self._serve(self._server, link)))
            return link

        return LinkTransport(connect, notify)

    def watch(self, counter: str, on_event: OnEvent) -> asyncio.Task[None] | None:
        if not self._up:
            return None
        self._tasks.append(asyncio.get_running_loop().create_task(_watch(self._server, counter, on_event)))
        return self._tasks[-1]

    async def _serve(self, server: SiteServer, link: Link) -> None:
        """As `server/http/sockets/websocket.py` does it; but whatever an honest client sends must be accepted."""
        frame = await link.arrived.get()
        if frame is None:
            return None
        max_bytes = self._conditions.tuning.max_frame_bytes
        hello, *rest = decode_up(frame, max_bytes)
        if not isinstance(hello, Hello):
            raise TypeError(hello)
        try:
            session = await server.on_hello(link, hello, _PEER)
        except StoreError as error:
            return link.close(1013, str(error))
        if session is None:
            return None
        self._sessions[link] = session
        try:
            server.on_frame(session, link, rest, len(frame))
            while (frame := await link.arrived.get()) is not None:
                server.on_frame(session, link, decode_up(frame, max_bytes), len(frame))
        finally:
            del self._sessions[link]
            if self._server is server and self._up:
                server.on_disconnect(session, link)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._server.tick()
            if self.restoring and not self._server.budgets.restoring:
                self.restoring = False  # as `app.end_of_restore` saves it


async def _watch(server: SiteServer, counter: str, on_event: OnEvent) -> None:
    async for event in server_sent_events(answer_changes(server, counter), None):
        on_event(event)
