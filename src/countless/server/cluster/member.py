"""One coordinator of a cluster: it renews its lease, takes the shards that are assigned to it, and gives up others.

A take-over, step by step:

1. The owner of a shard stops, hangs, or loses the broker. Its heartbeats stop. One lease after its last heartbeat, by
   its own clock, it sends nothing and answers nothing (`lease_keeper.py`).
2. Another member has seen the same heartbeat for 1.5 leases, by its own clock. With its next heartbeat it removes the
   owner from the assignment; the shards of the owner are unowned (`leases.py`).
3. The member to which `assign` gives a shard takes it with one of its next heartbeats.
4. It reads the shard's log and appends to it. From now on the log rejects appends of the previous owner, so the
   previous owner can neither save nor send, even if it resumes (`log_store.py`).
5. It recovers the counters from the log; their answers are `learning`. It subscribes to the shard's subjects and
   announces the take-over (`shard.py`). The sites open new streams and send their counts; answers are accurate again.

A coordinator that stops in good order saves, releases its shards, and step 3 follows at once. The same happens to
shards that `assign` gives to another member, because a member has joined.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from starlette.applications import Starlette

from countless.server.cluster.broker import BROKER_ERRORS, Bucket, NoBroker, connect, open_log_and_bucket
from countless.server.cluster.lease_keeper import Expelled, LeaseKeeper
from countless.server.cluster.leases import Assignment, assign
from countless.server.cluster.log_store import BrokerUnavailable, Fenced
from countless.server.cluster.shard import PRODUCTION, Shard, ShardSurroundings
from countless.server.cluster.tokens import BrokerTokens
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.storage.base import StoreError
from countless.wire.nats_subjects import DOWNLINK_PREFIX, PROTOCOL_VERSION, SHARDS_SUBJECT

log = logging.getLogger("countless.nats")

_HEARTBEATS_PER_LEASE = 4
_TAKEN_OVER = "taken over by another coordinator"
_UNAVAILABLE = (*BROKER_ERRORS, BrokerUnavailable)


class ClusterMember:
    """Use `join`, then `run` as a task, and `leave` at the end."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        bucket: Bucket,
        lease: LeaseKeeper,
        app_for: Callable[[SiteServer], Starlette],
        surroundings: ShardSurroundings = PRODUCTION,
    ) -> None:
        self.client = client
        self.lease = lease
        self.surroundings = surroundings
        self.tokens = BrokerTokens()
        self.shards: dict[int, Shard] = {}  # those that this coordinator owns and runs
        self.draining = False
        self.failing: str | None = None
        self.unavailable: str | None = None  # why the lease was not renewed
        self._settings = settings
        self._bucket = bucket
        self._app_for = app_for
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._stopping: dict[int, asyncio.Task[None]] = {}
        self._released: set[int] = set()  # saved and stopped, but still ours in the assignment
        self._wakeup = asyncio.Event()

    @classmethod
    async def join(cls, settings: Settings, app_for: Callable[[SiteServer], Starlette]) -> "ClusterMember":
        """Connect, and agree with the other members. Raises NoBroker."""
        client = await connect(settings.nats)
        return await cls.join_on(client, await open_log_and_bucket(client), settings, app_for)

    @classmethod
    async def join_on(
        cls,
        client: Client,
        bucket: Bucket,
        settings: Settings,
        app_for: Callable[[SiteServer], Starlette],
        surroundings: ShardSurroundings = PRODUCTION,
    ) -> "ClusterMember":
        clock, new_name = surroundings.clock, surroundings.new_name
        lease = await LeaseKeeper.join(
            bucket, settings.nats_shards, settings.nats_lease, clock, new_name, surroundings.tuning.rng
        )
        member = cls(settings, client, bucket, lease, app_for, surroundings)
        await member.tokens.refresh(bucket)
        await client.subscribe(SHARDS_SUBJECT, queue="countless", cb=member._on_shards_request)
        return member

    async def _on_shards_request(self, message: Msg) -> None:
        # A site chooses the subject of the reply, and a coordinator may publish where sites may not.
        if message.reply.startswith(DOWNLINK_PREFIX):
            await message.respond(msgspec.msgpack.encode((PROTOCOL_VERSION, self.lease.shards)))

    def now(self) -> float:
        return self.surroundings.clock()

    def drain(self) -> None:
        """Accept no new connection and end every event stream."""
        self.draining = True
        for shard in self.shards.values():
            shard.server.drain()

    async def leave(self) -> None:
        """Save, and release all shards."""
        await self._end_tasks()
        shards, self.shards = self.shards, {}
        await asyncio.gather(*(shard.stop("coordinator stops", save=True) for shard in shards.values()))
        try:
            await asyncio.wait_for(self.lease.release(), self.lease.lease_s)
        except _UNAVAILABLE:
            log.warning("broker unavailable, lease not released")
        with suppress(TimeoutError):  # a node that hangs takes no more data
            await asyncio.wait_for(self.client.close(), self.lease.lease_s)

    async def note_uses(self, uses: dict[bytes, int]) -> None:
        """For the list of tokens. If it fails, the next use is noted."""
        self.tokens.note_uses(uses)
        try:
            await self.tokens.write(self._bucket)
        except _UNAVAILABLE:
            log.info("broker unavailable, last use of tokens not saved")

    # The lease

    async def run(self) -> None:
        try:
            while True:
                self._wakeup.clear()
                try:
                    await self._renew_lease()
                    self.unavailable = None
                except _UNAVAILABLE as error:
                    self.unavailable = str(error) or "no answer from the broker"  # a full disk, for example
                    log.warning("broker unavailable, lease not renewed: error=%s", self.unavailable)
                    if self.client.is_closed:  # as after a login that the broker refuses: no new connection follows
                        raise NoBroker(f"connection closed by the broker: {self.client.last_error}") from None
                try:
                    await asyncio.wait_for(self._wakeup.wait(), self.lease.lease_s / _HEARTBEATS_PER_LEASE)
                except TimeoutError:
                    continue
        except Exception as error:
            self._fail(error)

    async def _renew_lease(self) -> None:
        released = frozenset(self._released)
        try:
            assignment = await self.lease.renew(released)
        except Expelled:
            log.warning("coordinator expelled by the others, joining again")
            await self._end_tasks()
            for number in list(self.shards):
                await self._stop_shard(number, _TAKEN_OVER, save=False)
            self._released.clear()
            self.lease.rejoin()
            assignment = await self.lease.renew(frozenset())
        self._released -= released
        self._rebalance(assignment)
        await self.tokens.refresh(self._bucket)

    def _rebalance(self, assignment: Assignment) -> None:
        """Start and stop shards in the background: the next heartbeat must not be late."""
        me = self.lease.member_id
        mine, wanted = assignment.shards_of(me), assign(assignment.heartbeats, self.lease.shards)
        for number in list(self.shards):
            if number not in mine:
                self._hand_over(number, _TAKEN_OVER, save=False)
            elif wanted[number] != me:
                self._hand_over(number, "moved to another coordinator", save=True)
        for number in mine - self.shards.keys() - self._starting.keys() - self._stopping.keys() - self._released:
            _start_task(self._starting, number, self._take_over(number))

    # Shards

    async def _take_over(self, number: int) -> None:
        try:
            on_failure = partial(self._on_shard_failure, number)
            self.shards[number] = await Shard.take_over(
                self.client, number, self._settings, self.lease.valid, self._app_for, on_failure, self.surroundings
            )
            if self.draining:
                self.shards[number].server.drain()
        except (*_UNAVAILABLE, StoreError, Fenced) as error:
            log.warning("shard take-over failed, retried with the next heartbeat: shard=%d error=%r", number, error)
        except Exception as error:
            self._fail(error)

    def _hand_over(self, number: int, reason: str, save: bool) -> None:
        async def stop_and_release() -> None:
            await self._stop_shard(number, reason, save)
            if save:
                self._released.add(number)
                self._wakeup.set()

        if number not in self._stopping:
            _start_task(self._stopping, number, stop_and_release())

    async def _stop_shard(self, number: int, reason: str, save: bool) -> None:
        shard = self.shards.pop(number, None)
        if shard is not None:
            await shard.stop(reason, save)

    async def _end_tasks(self) -> None:
        """Not with `end_tasks`: a second cancellation would interrupt a take-over that ends its tasks. One that gets
        lost does no harm, because a take-over ends by itself, without a lease with an error.
        """
        for task in self._starting.values():
            task.cancel()
        await asyncio.gather(*self._starting.values(), *self._stopping.values(), return_exceptions=True)

    def _on_shard_failure(self, number: int, error: BaseException) -> None:
        if isinstance(error, Fenced):
            log.warning("shard lost to another coordinator: shard=%d error=%s", number, error)
            self._hand_over(number, _TAKEN_OVER, save=False)
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the process: a coordinator that has failed must not pass its probes."""
        self.failing = f"failed: {error}"
        if isinstance(error, NoBroker):
            log.critical("broker connection closed, stopping: error=%s", error)
        else:
            log.critical("background task failed, stopping: please report this", exc_info=error)
        self.surroundings.end_process()


def _start_task(tasks: dict[int, asyncio.Task[None]], number: int, work: Coroutine[Any, Any, None]) -> None:
    """`tasks` holds it until it is done."""
    task = tasks[number] = asyncio.create_task(work)
    task.add_done_callback(lambda _: tasks.pop(number))
