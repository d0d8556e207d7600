"""Several coordinators behind one broker: killed, stopped, cut off or stalled, they take over from each other."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from http import HTTPStatus

from starlette.applications import Starlette

from countless.client.transport.base import ConnectionLost
from countless.core.budget.rule import BudgetRule
from countless.core.random_source import RandomSource
from countless.server.cluster.broker import JETSTREAM_TIMEOUT_S, Bucket
from countless.server.cluster.forwarding import ForwardedAuth, OwnerUnreachable
from countless.server.cluster.log_store import LogStore
from countless.server.cluster.member import ClusterMember
from countless.server.cluster.router import POLL, answer_in, answers_after, poll
from countless.server.cluster.shard import ShardSurroundings
from countless.server.http.answers.published import server_sent_events
from countless.server.http.api.openapi import routes_of
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.wire.frames import decode_down
from countless.wire.keys import BUDGET, Key
from countless.wire.nats_subjects import DataFrame, decode_downlink, shard_of
from countless.wire.nats_url import Broker
from simulator.broker import (
    MemberConnection,
    SimulatedBroker,
    SimulatedNatsTransport,
    SiteSocket,
    Wire,
)
from simulator.coordinator import TICK_S, Conditions, Endpoint, unowned
from simulator.network import DOWN
from simulator.reader import OnEvent
from simulator.restore import Knowledge
from simulator.virtual_loop import TakesTurns, new_group

SHARDS = 2
LEASE_S = 20.0
_START_S = 5.0  # until a coordinator that was killed is started again, at most


class SimulatedLogStore(TakesTurns, LogStore):
    """The log store of production, in a thread that takes turns with the loop. A few changes fill a part of a record,
    and its log.
    """

    part_bytes, compact_after_messages = 300, 40


class MemberProcess:
    """One run of a coordinator."""

    def __init__(self, broker: SimulatedBroker, wire: Wire, conditions: Conditions, offset: float) -> None:
        self.offset = offset  # of its wall clock
        self.member: ClusterMember | None = None
        self.leaving = False
        self._true_clock = conditions.true_clock
        self._loop = asyncio.get_running_loop()
        self._surroundings = ShardSurroundings(
            self._loop.time,
            self._wall_clock,
            conditions.new_name,
            SimulatedLogStore,
            tick_s=TICK_S,
            tuning=conditions.tuning,
            poll_s=4.0,  # a change is answered at once: shorter polls of a quiet counter show nothing
            retry_s=1.0,
            end_process=lambda: None,  # `World.check` sees that it has failed
        )
        self._context, self._group = new_group()
        self.connection = MemberConnection(broker, wire, self._context)
        self._run = self._context.run(self._loop.create_task, self._join_and_run(conditions.settings))

    async def _join_and_run(self, settings: Settings) -> None:
        jetstream = self.connection.jetstream(JETSTREAM_TIMEOUT_S)
        bucket = Bucket(jetstream, jetstream)  # type: ignore[arg-type]
        while self.member is None:
            try:
                self.member = await ClusterMember.join_on(
                    self.connection,  # type: ignore[arg-type]
                    bucket,
                    settings,
                    _app_for,
                    self._surroundings,
                )
            except TimeoutError:
                await asyncio.sleep(1.0)
        await self.member.run()

    def _wall_clock(self) -> float:
        return self._true_clock() + self.offset

    @property
    def servers(self) -> dict[int, SiteServer]:
        """By shard: those that may answer readers."""
        if self.member is None or not self.member.lease.valid():
            return {}
        return {number: shard.server for number, shard in self.member.shards.items()}

    async def kill(self) -> None:
        self.connection.end()
        while tasks := self._group.running:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def watch(self, counter: str, on_event: OnEvent) -> asyncio.Task[None] | None:
        if self.member is None:
            return None
        return self._context.run(self._loop.create_task, _watch(self.member, counter, on_event))

    def leave(self) -> asyncio.Task[None]:
        """As a coordinator ends that is stopped."""
        self.leaving = True
        return self._context.run(self._loop.create_task, self._leave())

    async def _leave(self) -> None:
        if self.member is not None:
            self.member.drain()
        self._run.cancel()
        await asyncio.gather(self._run, return_exceptions=True)
        if self.member is not None:
            await self.member.leave()


def _app_for(server: SiteServer) -> Starlette:
    app = Starlette(routes=routes_of([POLL]))
    app.state.server, app.state.access = server, ForwardedAuth()
    return app


async def _watch(member: ClusterMember, counter: str, on_event: OnEvent) -> None:
    """As the router of a member does it."""
    with suppress(OwnerUnreachable):
        response = await poll(member, counter, None)
        if response.status_code == HTTPStatus.OK:
            async for event in server_sent_events(answers_after(member, counter, answer_in(response)), None):
                on_event(event)


class Cluster:
    """Implements `Service`."""

    endpoint = Broker.parse("nats://simulated")

    def __init__(self, rng: RandomSource, members: int, conditions: Conditions) -> None:
        self._rng = rng
        self._size = members
        self._conditions = conditions
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._broker = SimulatedBroker(rng, conditions.disk_is_full)
        self._members: list[MemberProcess] = []
        self._endings: list[asyncio.Task[None]] = []
        self._closed = False

    async def start(self) -> None:
        for _ in range(self._size):
            self._start_member()
        await self.takeover()

    async def takeover(self) -> None:
        """Wait until every shard has an owner."""
        while self.trouble() is not None:
            await asyncio.sleep(1.0)

    def _start_member(self, offset: float = 0.0) -> None:
        if not self._closed:
            wire = Wire(lambda: self._conditions.delay() / 10)
            self._members.append(MemberProcess(self._broker, wire, self._conditions, offset))

    async def create_budgets(self, rules: dict[str, BudgetRule]) -> None:
        owners = self.owners()
        for name, rule in rules.items():
            owners[shard_of(Key(BUDGET, name), SHARDS)].budgets.create(name, rule)
        for server in owners.values():
            await server.flush()

    def owners(self) -> dict[int, SiteServer]:
        """By shard."""
        return {shard: server for process in self._members for shard, server in process.servers.items()}

    def servers(self) -> list[SiteServer]:
        return [server for process in self._members for server in process.servers.values()]

    def trouble(self) -> str | None:
        owners = self.owners()
        return next((f"shard {shard} has no owner" for shard in range(SHARDS) if shard not in owners), None)

    def failure(self) -> str | None:
        """The reason why a coordinator has ended itself, or a membership without a token."""
        members = (process.member for process in self._members if process.member is not None)
        return next((member.failing for member in members if member.failing), None) or unowned(self.servers())

    started, restoring = 0.0, False  # a copy of the broker's streams is not simulated

    def back_up(self) -> None: ...

    async def restore(self, pause: float) -> tuple[Knowledge, Knowledge] | None:
        return None

    def drop_ended(self) -> None: ...

    # Faults

    async def fail(self, pause: float) -> None:
        """One of them is killed, now or at its next append, or stopped in good order, and another is started; or it is
        cut off, or stalled.
        """
        if not self._members:  # all were killed at their appends
            return
        process = self._members[self._rng.randbelow(len(self._members))]
        fault = self._rng.randbelow(10) - 2
        seconds = (3.0, 0.8 * LEASE_S, 2.5 * LEASE_S)[self._rng.randbelow(3)]
        if fault < 0:
            process.connection.kill_at_next_append(lambda: self._killed_at_append(process))
        elif fault < 2 and len(self._members) >= self._size:
            await self._kill(process)
        elif fault == 2 and not process.leaving and len(self._members) >= self._size:
            ending = process.leave()
            ending.add_done_callback(lambda _: self._replace(process))
            self._endings.append(ending)
        elif fault < 5:
            process.connection.wire.cut(seconds)
        else:
            process.connection.wire.stall(seconds)

    def _killed_at_append(self, process: MemberProcess) -> None:
        kill = self._kill(process)  # not in the context of the process: its own tasks are cancelled
        self._endings.append(self._loop.create_task(kill, context=self._context))

    async def kill_owner(self, shard: int) -> None:
        await self._kill(next(process for process in self._members if shard in process.servers))

    async def _kill(self, process: MemberProcess) -> None:
        if process in self._members:
            self._members.remove(process)
            await process.kill()
            self._loop.call_later(self._rng.random() * _START_S, self._start_member, process.offset)

    def _replace(self, process: MemberProcess) -> None:
        if process in self._members:
            self._members.remove(process)
            self._start_member(process.offset)

    def turn_clock(self, jump: float) -> None:
        if self._members:
            self._members[self._rng.randbelow(len(self._members))].offset = jump

    def heal(self) -> None:
        for process in self._members:
            process.offset = 0.0
            process.connection.wire.heal()
            process.connection.kill_at_next_append(None)

    async def close(self) -> None:
        self._closed = True
        for process in self._members:
            await process.kill()
        await asyncio.gather(*self._endings, return_exceptions=True)

    # Readers and processes

    def watch(self, counter: str, on_event: OnEvent) -> asyncio.Task[None] | None:
        members = self._members
        return members[self._rng.randbelow(len(members))].watch(counter, on_event) if members else None

    def transport(self, endpoint: Endpoint, notify: Callable[[], None]) -> SimulatedNatsTransport:
        def open_socket(transport: SimulatedNatsTransport) -> SiteSocket:
            if endpoint.is_cut():
                raise ConnectionLost("the network is cut")

            def watch(payload: bytes) -> None:
                endpoint.record(DOWN, payload)
                message = decode_downlink(payload)
                if isinstance(message, DataFrame):
                    endpoint.watch(transport, decode_down(message.frame))

            wire = Wire(self._conditions.delay)
            return SiteSocket(self._broker, wire, transport.notify, watch, endpoint.record)

        new_name, rng = self._conditions.new_name, self._conditions.tuning.rng
        return SimulatedNatsTransport(endpoint.site, SHARDS, open_socket, notify, self._loop.time, new_name, rng)
