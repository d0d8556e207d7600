"""One coordinator among others: it beats, takes the shards that are its share, and lets go of what is not.

The lease. A beat that was written successfully is good for `nats_lease` from the moment before it was sent, by our own
clock; without a newer one nothing is shown or sent any more. Others strike us off only when they have seen the same
beat for longer than that (`server/cluster/leases.py`), and then our next beat fails.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from secrets import token_hex
from signal import SIGTERM, raise_signal
from time import monotonic
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from starlette.applications import Starlette

from countless.randomness import SystemRandom
from countless.server.cluster.broker import Bucket, connect, open_both
from countless.server.cluster.leases import Table, Watch, decode, empty, encode, fair, turn, without
from countless.server.cluster.log_store import BrokerAway, Deposed
from countless.server.cluster.shard import Shard
from countless.server.cluster.tokens import NatsTokens
from countless.server.sessions.site_server import SiteServer
from countless.server.settings import Settings
from countless.server.storage.base import StoreError
from countless.wire.nats_subjects import PROTOCOL_VERSION, SHARDS_SUBJECT

log = logging.getLogger("countless.nats")

_KEY = "table"
_TURNS = 4  # in a lease
_CONFLICT = 50  # after one, up to this part of a lease until the next attempt
_TAKEN = "another coordinator has taken over"
_AWAY = (NatsError, TimeoutError, OSError, BrokerAway)


class Member:
    """Use `join`, then `run` as a task, and `leave` at the end."""

    def __init__(self, settings: Settings, app_for: Callable[[SiteServer], Starlette]) -> None:
        self.shards: dict[int, Shard] = {}  # those that are ours
        self.number = 0  # of all shards
        self.draining = False
        self.failing: str | None = None
        self.tokens = NatsTokens()
        self.client: Client
        self._settings = settings
        self._app_for = app_for
        self._bucket: Bucket
        self._me = ""  # known to the others by this name, once we have joined
        self._watch = Watch()
        self._lease = settings.nats_lease
        self._until = 0.0  # our lease, by our clock
        self._taking: dict[int, asyncio.Task[None]] = {}
        self._leaving: dict[int, asyncio.Task[None]] = {}
        self._released: set[int] = set()  # saved and stopped, but still ours in the table
        self._soon = asyncio.Event()

    def leased(self) -> bool:
        """Whether nobody else can have been given what is ours."""
        return monotonic() < self._until

    def drain(self) -> None:
        """Nobody new comes in, and whoever watches is let go."""
        self.draining = True
        for shard in self.shards.values():
            shard.host.drain()

    # Coming and going

    async def join(self) -> None:
        """Connect, and agree with the others on the number of shards and on the lease."""
        self.client = await connect(self._settings.nats)
        self._bucket = await open_both(self.client)
        await self.tokens.refresh(self._bucket)
        await self._agree()
        await self.client.subscribe(SHARDS_SUBJECT, queue="countless", cb=self._tell_number)

    async def _agree(self) -> None:
        """What the others have agreed on holds; whoever is alone may choose another lease, but not other shards."""
        wished = self._settings
        table, revision = await self._read()
        while not table.beats and table.lease != wished.nats_lease:
            await self._write(msgspec.structs.replace(table, lease=wished.nats_lease), revision)
            table, revision = await self._read()
        self.number, self._lease = len(table.owners), table.lease
        if (self.number, self._lease) != (wished.nats_shards, wished.nats_lease):
            log.warning("agreed on before: %d shards, a lease of %g seconds", self.number, self._lease)

    async def _tell_number(self, message: Msg) -> None:
        await message.respond(msgspec.msgpack.encode((PROTOCOL_VERSION, self.number)))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._soon.clear()
            try:
                await self._turn()
            except _AWAY as error:
                log.warning("the broker does not answer: %r", error)
            try:
                await asyncio.wait_for(self._soon.wait(), self._lease / _TURNS)
            except TimeoutError:
                continue

    async def leave(self) -> None:
        """Give everything back."""
        for task in self._taking.values():
            task.cancel()
        await asyncio.gather(*self._taking.values(), *self._leaving.values(), return_exceptions=True)
        shards, self.shards = self.shards, {}
        await asyncio.gather(*(shard.stop("this coordinator is going down", save=True) for shard in shards.values()))
        try:
            await asyncio.wait_for(self._say_goodbye(), self._lease)
        except _AWAY:
            log.warning("the broker does not answer: the lease will run out")
        await self.client.close()

    async def _say_goodbye(self) -> None:
        while True:
            table, revision = await self._read()
            if await self._write(without(table, self._me), revision):
                return

    # The table

    async def _read(self) -> tuple[Table, int]:
        while True:
            value, revision = await self._bucket.get(_KEY)
            if revision:
                return decode(value), revision
            await self._write(empty(self._settings.nats_shards, self._settings.nats_lease), 0)

    async def _write(self, table: Table, revision: int) -> bool:
        return await self._bucket.put(_KEY, encode(table), revision)

    async def _turn(self) -> None:
        while True:
            asked = monotonic()  # our lease counts from before, what we see of others from after
            table, revision = await self._read()
            if self._me not in table.beats:
                await self._begin_again()
            dead = self._watch.look(table, monotonic()) - {self._me}
            released = frozenset(self._released)
            after = turn(table, self._me, dead, released)
            if await self._write(after, revision):
                break
            await asyncio.sleep(self._lease * SystemRandom().random() / _CONFLICT)
        self._lease = after.lease
        self._until = asked + self._lease
        self._released -= released
        self._settle(after)
        await self.tokens.refresh(self._bucket)

    async def _begin_again(self) -> None:
        """We are new, or were struck off: then all we had is somebody else's."""
        for task in self._taking.values():
            task.cancel()
        await asyncio.gather(*self._taking.values(), *self._leaving.values(), return_exceptions=True)
        for number in list(self.shards):
            await self._let_go(number, _TAKEN, save=False)
        self._me, self._released = token_hex(8), set()

    def _settle(self, table: Table) -> None:
        """Begin to take, and to let go, without waiting: the next beat must not be late."""
        mine, wanted = table.of(self._me), fair(table.beats, self.number)
        for number in list(self.shards):
            if number not in mine:
                self._leave_to_others(number, _TAKEN, save=False)
            elif wanted[number] != self._me:
                self._leave_to_others(number, "moved to another coordinator", save=True)
        for number in mine - self.shards.keys() - self._taking.keys() - self._leaving.keys() - self._released:
            _begin(self._taking, number, self._take(number))

    async def _take(self, number: int) -> None:
        try:
            failed = partial(self._failed, number)
            shard = await Shard.take_over(self.client, number, self._settings, self.leased, self._app_for, failed)
            self.shards[number] = shard
            if self.draining:
                shard.host.drain()
        except (*_AWAY, StoreError, Deposed) as error:
            log.warning("shard %d cannot be taken over yet: %r", number, error)
        except Exception as error:
            self._failed(number, error)

    def _leave_to_others(self, number: int, reason: str, save: bool) -> None:
        async def leave() -> None:
            await self._let_go(number, reason, save)
            if save:
                self._released.add(number)
                self._soon.set()

        if number not in self._leaving:
            _begin(self._leaving, number, leave())

    async def _let_go(self, number: int, reason: str, save: bool) -> None:
        shard = self.shards.pop(number, None)
        if shard is not None:
            await shard.stop(reason, save)

    def _failed(self, number: int, error: BaseException) -> None:
        if isinstance(error, Deposed):
            log.warning("shard %d: %s", number, error)
            return self._leave_to_others(number, _TAKEN, save=False)
        return self._fail(error)

    def look(self, running: asyncio.Task[None]) -> None:
        """`run` has ended: if not by our will, this coordinator must not look alive."""
        if not running.cancelled() and running.exception() is not None:
            self._fail(running.exception() or RuntimeError())

    def _fail(self, error: BaseException) -> None:
        self.failing = f"failed: {error}"
        log.critical("a coordinator has failed: please report this", exc_info=error)
        raise_signal(SIGTERM)


def _begin(tasks: dict[int, asyncio.Task[None]], number: int, work: Coroutine[Any, Any, None]) -> None:
    """Something that is done in the background, and forgotten when it is done."""
    task = tasks[number] = asyncio.create_task(work)
    task.add_done_callback(lambda _: tasks.pop(number))
