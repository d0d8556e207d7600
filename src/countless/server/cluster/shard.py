"""One shard that is ours: a host like that of a single coordinator, on a log instead of a disk, behind subjects."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from secrets import token_hex

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from starlette.applications import Starlette

from countless.errors import CountlessError
from countless.server.cluster.connections import NatsConnections
from countless.server.cluster.forwarding import TunnelExit, tunnel
from countless.server.cluster.log_store import PATIENCE, NatsStore
from countless.server.sessions.site_server import SiteServer
from countless.server.settings import Settings
from countless.wire.nats_subjects import uplink_subject

log = logging.getLogger("countless.nats")

_TICK = 0.25  # at most, in seconds: how often the host looks at the clock
_LAST_SAVE = 5.0  # seconds for it: what is not saved then, sites say again to whoever comes next


class Shard:
    """Runs until it is stopped, or until it fails: then `failed` is called, once."""

    def __init__(
        self, host: SiteServer, app: Starlette, connections: NatsConnections, failed: Callable[[BaseException], None]
    ) -> None:
        self.host = host
        self.app = app
        self._connections = connections
        self._failed = failed
        self._tasks: list[asyncio.Task[None]] = []
        self._subscriptions: list[Subscription] = []

    @classmethod
    async def take_over(
        cls,
        client: Client,
        number: int,
        settings: Settings,
        leased: Callable[[], bool],
        app_for: Callable[[SiteServer], Starlette],
        failed: Callable[[BaseException], None],
    ) -> "Shard":
        """From its log; whoever had it before cannot write to that any more."""
        session = token_hex(8)
        store = NatsStore(client.jetstream(timeout=PATIENCE), number, session, leased)
        await store.take_over()
        host = SiteServer(store, settings)
        connections = NatsConnections(host, number, session, leased, partial(_publish, client))
        shard = cls(host, app_for(host), connections, failed)
        try:
            await shard._open(client, number, TunnelExit(client, shard.app, leased))
        except BaseException:
            await shard.stop("not yet", save=False)
            raise
        return shard

    async def _open(self, client: Client, number: int, tunnel_exit: TunnelExit) -> None:
        async def from_site(message: Msg) -> None:
            await self._connections.on_message(message.subject, message.data)

        for work in (self.host.flush(), self.host.run(), self._tick(), self._connections.run()):
            self._tasks.append(asyncio.create_task(work))
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:  # what the log said can be seen; or something has failed
            task.result()
        for task in self._tasks:
            task.add_done_callback(self._look)
        for subject, heard in ((uplink_subject(number, "*", "*"), from_site), (tunnel(number), tunnel_exit.request)):
            self._subscriptions.append(await client.subscribe(subject, cb=heard))
        await client.flush()
        await self._connections.announce_takeover()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(min(_TICK, self.host.settings.silent_after / 4))
            self.host.tick()
            self._connections.drop_idle()

    def _look(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            failed, self._failed = self._failed, lambda _: None
            failed(task.exception() or RuntimeError())

    async def stop(self, reason: str, save: bool) -> None:
        """Let go of everybody; with a last save if it is ours to save."""
        self._failed = lambda _: None
        self.host.drain()
        for subscription in self._subscriptions:
            with suppress(NatsError, OSError):
                await subscription.unsubscribe()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if save:
            with suppress(CountlessError, TimeoutError):
                await asyncio.wait_for(self.host.stop(), _LAST_SAVE)
        await self._connections.close(reason)
        self.host.planner.stop()


async def _publish(client: Client, subject: str, data: bytes) -> None:
    """At most once: whoever misses something notices, because frames are numbered."""
    try:
        await client.publish(subject, data)
    except (NatsError, OSError) as error:
        log.info("a message could not be sent: %r", error)
