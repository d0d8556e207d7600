"""The host: one asyncio loop around the core. It has the connections, the clock and the disk that the core has not.

Everything here runs in the loop's thread except two things that take time: the disk and the planner have a thread each.
An input goes to the core at once; what the core returns goes to the post, which saves before it sends.

Here is what connections bring, and what time brings. The counters and the lives it is about are in `roster.py`.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from sys import intern
from time import monotonic, time

from countless.core.messages import DownMessage, Report, SiteId, Snapshot
from countless.errors import InvalidParameter, PlanError, ProtocolError
from countless.server.sessions.counter import Counter
from countless.server.sessions.planner import Planner
from countless.server.sessions.registry import CounterRegistry
from countless.server.sessions.session_table import HEARTBEAT_PER_TIMEOUT, Connection, Session
from countless.server.settings import Settings
from countless.server.storage.base import StateStore
from countless.wire.frames import (
    VERSION,
    CounterRejected,
    DownItem,
    Hello,
    HelloAck,
    IncarnationRetired,
    Join,
    Leave,
    LeaveAck,
    Rejoin,
    Sync,
    SyncAck,
    UpItem,
)

_LARGEST_INCARNATION = 1 << 63
_BIRTH = 30  # bits of an incarnation below the second in which its life began
_PRUNE_EVERY = 60.0  # seconds
_AT_ONCE = 500  # sites looked at: a millisecond or two


class SiteServer(CounterRegistry):
    """Hears what connections bring, and watches the clock."""

    def __init__(
        self,
        store: StateStore,
        settings: Settings,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        super().__init__(store, settings, clock)
        self.dropped: Tally[str] = Tally()  # connections and counters refused, by reason
        self.frame_bytes: Tally[str] = Tally(up=0, down=0)
        self.connection_count = 0
        self.draining = False
        self._wall_clock = wall_clock
        self._pruned_at = clock()
        self.planner = Planner()

    # Time

    async def run(self) -> None:
        """Save and send, until cancelled."""
        await self._pipeline.run()

    async def flush(self) -> None:
        """Wait until everything that has happened so far is on the disk and can be seen."""
        await self._pipeline.flush()

    @property
    def failing(self) -> str | None:
        """Why nothing can be saved at present, if so."""
        return self._pipeline.failing

    def fail(self, reason: str) -> None:
        """For good."""
        self._pipeline.failing = reason

    def now(self) -> float:
        """The host's clock."""
        return self._clock()

    def drain(self) -> None:
        """Nobody new comes in, and whoever watches is let go."""
        self.draining = True
        for counter in self.counters.values():
            counter.changed.set()

    async def stop(self) -> None:
        """The last save."""
        await self._pipeline.stop()
        self.planner.stop()

    def tick(self) -> None:
        """Now and then: who has fallen silent, and what should be planned ahead?"""
        for _ in self.tick_in_slices():
            pass

    def tick_in_slices(self) -> Iterator[None]:
        """The same with breaks, so that nobody waits until thousands of sites have been looked at."""
        now, silent_after = self._clock(), self.settings.silent_after
        for number, session in enumerate(self.sessions, start=1):
            if number % _AT_ONCE == 0:
                yield
            if (
                session.connection is not None
                and session.awaiting_since is None
                and now - session.connection.last_seen <= silent_after
            ):
                continue  # nearly all of them, nearly always
            if not session.unreachable and session.timed_out(now, silent_after):
                self._mark_unreachable(session)
            expired = 0 < self.settings.forget_after < now - session.last_seen()
            if session.unreachable and session.memberships and (expired or self.sessions.has_successor(session)):
                self._retire(session)
        if now - self._pruned_at > _PRUNE_EVERY:
            self._pruned_at = now
            self._pipeline.prune(int(self._wall_clock() - self.settings.remember_for))
        self.planner.maybe_plan(self.counters.values())

    # What connections bring

    async def on_hello(self, connection: Connection, hello: Hello) -> Session | None:
        """A connection says who it is. None: that life was given up, and the line has been told what is known of it."""
        if hello.version != VERSION:
            raise ProtocolError(f"this coordinator speaks version {VERSION} of the protocol, not {hello.version}")
        if hello.incarnation >= _LARGEST_INCARNATION:
            raise ProtocolError("an incarnation has at most 63 bits")
        site_id = SiteId(hello.site, hello.incarnation)
        if site_id not in self.sessions:
            await self.flush()
            known, horizon = await asyncio.to_thread(self._tombstone, site_id)
            if known and site_id not in self.sessions:
                connection.send([IncarnationRetired(known)])
                return None
            if site_id.incarnation >> _BIRTH < horizon:
                raise ProtocolError("this life began before all that is remembered of lives that ended: begin another")
            if len(self.sessions) >= self.settings.max_sites:
                raise ProtocolError(f"there are {self.settings.max_sites} sites already (max_sites)")
        session = self.sessions.open(site_id, self._clock())
        if session.connection is not None:
            session.connection.close(1008, "another connection of the same life has come")
        session.connection, connection.last_seen, session.awaiting_since = connection, self._clock(), None
        session.unreachable = False  # the core hears it counter by counter
        for other in self.sessions.of_site(hello.site):
            if other.unreachable and other is not session:
                self._retire(other)
        self._pipeline.send(
            connection, HelloAck(VERSION, int(self.settings.silent_after * 1000 * HEARTBEAT_PER_TIMEOUT))
        )
        return session

    def _tombstone(self, site_id: SiteId) -> tuple[tuple[tuple[str, int], ...], int]:
        return self._store.tombstones(site_id), self._store.tombstone_horizon()

    def on_frame(self, session: Session, connection: Connection, items: list[UpItem], size: int) -> None:
        """A frame of `size` bytes. A ProtocolError leaves everything as it was before the offending item."""
        if session.connection is not connection:
            return
        connection.last_seen, session.awaiting_since = self._clock(), None
        share = size / (len(items) or 1)
        for item in items:
            if isinstance(item, (Report, Snapshot)):
                self._message(session, connection, item, share)
            elif isinstance(item, Join):
                self._join(session, connection, item, share)
            elif isinstance(item, Sync):
                self._pipeline.send(connection, SyncAck(item.number))
            elif isinstance(item, Leave):
                self._leave(session, connection, item, share)
            else:
                raise ProtocolError("a second hello")

    def frame_sent(self, items: list[DownItem], size: int) -> None:
        """A frame has gone out."""
        self.frame_bytes["down"] += size
        for item in items:
            if isinstance(item, DownMessage) and item.counter in self.counters:
                self.counters[item.counter].traffic.down_bytes += size / len(items)

    def _join(self, session: Session, connection: Connection, join: Join, size: float) -> None:
        if join.counter in session.left:  # it did not hear that its last word had arrived
            self._ignore_counter(connection, join.counter)
            return self._pipeline.send(connection, LeaveAck(join.counter))
        try:
            counter, site_id = self._seats.offer(session, join.counter, self.create)
            if join.round > counter.coordinator.round:  # this coordinator has lost its memory, or it was deleted
                self._ignore_counter(connection, join.counter)
                return self._pipeline.send(connection, Rejoin(join.counter, keep_count=True))
            outbox = counter.coordinator.join(site_id, Snapshot(*join))
        except (InvalidParameter, PlanError) as error:
            self.dropped["counter refused"] += 1
            self._ignore_counter(connection, join.counter)
            return self._pipeline.send(connection, CounterRejected(join.counter, str(error)))
        connection.ignored_counters.discard(join.counter)
        session.memberships[intern(join.counter)] = site_id  # the same text as in thousands of other lives
        self._heard(counter, site_id, size)
        return self._dispatch(counter, outbox)

    def _ignore_counter(self, connection: Connection, name: str) -> None:
        """Until it is joined anew."""
        if len(connection.ignored_counters) >= self.settings.max_counters_per_site:
            raise ProtocolError("too many counters that are not taken in (max_counters_per_site)")
        connection.ignored_counters.add(name)

    def _message(self, session: Session, connection: Connection, message: Report | Snapshot, size: float) -> None:
        name = message.counter
        if name in connection.ignored_counters:
            return None
        site_id = session.memberships.get(name)
        if site_id is session.site_id:
            counter = self.counters[name]
        elif site_id is not None:
            counter, site_id = self._seats.of(session, name)
        elif name in session.left:
            return self._pipeline.send(connection, LeaveAck(name))
        else:
            raise ProtocolError(f"site {session.site_id.site!r} has not joined {name!r}")
        outbox = counter.coordinator.receive(site_id, message)
        traffic = counter.traffic  # `_heard`, without the call
        traffic.up += 1
        traffic.up_bytes += size
        self._pipeline.mark_site(counter.name, site_id)
        return self._dispatch(counter, outbox) if outbox else None

    def _leave(self, session: Session, connection: Connection, farewell: Leave, size: float) -> None:
        name = farewell.counter
        if name in connection.ignored_counters:
            return
        if name not in session.left:
            if name not in session.memberships:
                raise ProtocolError(f"site {session.site_id.site!r} has not joined {name!r}")
            counter, site_id = self._seats.of(session, name)
            known = max(farewell.count, counter.coordinator.reported_by(site_id))
            outbox = counter.coordinator.leave(site_id, Snapshot(*farewell))
            self._heard(counter, site_id, size)
            session.left.add(name)
            self._record_departure(counter, session, name, known)
            self._dispatch(counter, outbox)
        self._pipeline.send(connection, LeaveAck(name))

    def _heard(self, counter: Counter, site_id: SiteId, size: float) -> None:
        traffic = counter.traffic
        traffic.up += 1
        traffic.up_bytes += size
        self._pipeline.mark_site(counter.name, site_id)
