"""One shard that this coordinator owns: a site server like that of a single coordinator, with a log for its state."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from signal import SIGTERM, raise_signal
from time import monotonic, time
from typing import NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from starlette.applications import Starlette

from countless.errors import CountlessError
from countless.randomness import random_name
from countless.server.cluster.broker import JETSTREAM_TIMEOUT_S, end_tasks
from countless.server.cluster.connections import NatsConnections
from countless.server.cluster.forwarding import ForwardHandler
from countless.server.cluster.log_store import LogStore
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.tuning import TUNING, Tuning
from countless.wire.nats_subjects import forward_subject, uplink_subject

log = logging.getLogger("countless.nats")

_FINAL_SAVE_TIMEOUT_S = 5.0  # what is not saved by then, the sites send again to the next owner


class ShardSurroundings(NamedTuple):
    """Functions and times that a member takes from outside, beside its settings. The fault simulator has others."""

    clock: Callable[[], float] = monotonic
    wall_clock: Callable[[], float] = time
    new_name: Callable[[], str] = random_name  # of a member, or of one ownership of a shard
    store: type[LogStore] = LogStore
    tick_s: float = 0.25  # at most, between two looks for sites that time out
    poll_s: float = 2.0  # a reader that waits for a change gets an answer then; a forwarded request may take longer
    retry_s: float = 0.2  # until such a question is asked again
    tuning: Tuning = TUNING
    end_process: Callable[[], None] = partial(raise_signal, SIGTERM)  # of a member that has failed


PRODUCTION = ShardSurroundings()


class Shard:
    """Runs until `stop`, or until a task fails: then `on_failure` is called once."""

    def __init__(
        self,
        server: SiteServer,
        app: Starlette,
        connections: NatsConnections,
        on_failure: Callable[[BaseException], None],
        tick_s: float,
    ) -> None:
        self.server = server
        self.app = app
        self._connections = connections
        self._on_failure = on_failure
        self._tick_s = tick_s
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
        on_failure: Callable[[BaseException], None],
        surroundings: ShardSurroundings,
    ) -> "Shard":
        """Fence the previous owner, recover the state from the log, then ask the sites to connect."""
        ownership_id, clock, wall_clock = surroundings.new_name(), surroundings.clock, surroundings.wall_clock
        jetstream = client.jetstream(timeout=JETSTREAM_TIMEOUT_S)
        store = surroundings.store(jetstream, number, ownership_id, leased, wall_clock)
        await store.take_over()
        server = SiteServer(store, settings, clock, wall_clock, surroundings.tuning)
        connections = NatsConnections(server, number, ownership_id, leased, partial(_publish, client), clock)
        shard = cls(server, app_for(server), connections, on_failure, surroundings.tick_s)
        try:
            await shard._start(client, number, leased)
        except BaseException:
            await shard.stop("take-over failed", save=False)
            raise
        return shard

    async def _start(self, client: Client, number: int, leased: Callable[[], bool]) -> None:
        async def on_uplink(message: Msg) -> None:
            await self._connections.on_message(message.subject, message.data)

        # Fails if the state cannot be saved, as without a lease. To wait for the lease would be to wait for ever: if we
        # are expelled, the next lease comes after the end of this take-over, and a cancellation of it may get lost.
        saved = self.server.require_saved()
        work = (saved, self.server.run(), self._tick(), self._connections.run())
        self._tasks += map(asyncio.create_task, work)
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:  # the recovered state is saved and visible; or a task has failed
            task.result()
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)
        on_forward = ForwardHandler(client, self.app, leased).on_message
        for subject, callback in ((uplink_subject(number, "*", "*"), on_uplink), (forward_subject(number), on_forward)):
            self._subscriptions.append(await client.subscribe(subject, cb=callback))
        await self._connections.announce_takeover()  # the broker handles it after the subscriptions

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(min(self._tick_s, self.server.settings.silent_after / 4))
            for _ in self.server.tick_in_slices():
                await asyncio.sleep(0)
            self._connections.drop_idle()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            on_failure, self._on_failure = self._on_failure, _ignore
            on_failure(error)

    async def stop(self, reason: str, save: bool) -> None:
        """Close all streams with this reason. `save` is for a shard that is still ours."""
        self._on_failure = _ignore
        self.server.drain()
        for subscription in self._subscriptions:
            with suppress(NatsError, OSError):
                await subscription.unsubscribe()
        await end_tasks(self._tasks)
        if save:
            with suppress(CountlessError, TimeoutError):
                await asyncio.wait_for(self.server.stop(), _FINAL_SAVE_TIMEOUT_S)
        self.server.health.failing = reason  # requests that wait for a save get an answer: none follows
        await self._connections.close(reason)
        self.server.stop_threads()


def _ignore(error: BaseException) -> None:
    pass


async def _publish(client: Client, subject: str, data: bytes) -> None:
    """At most once: frames are numbered, so the receiver finds the gap."""
    try:
        await client.publish(subject, data)
    except (NatsError, OSError) as error:
        log.info("publish failed: %r", error)
