"""The site server: it has the connections, the clock and the store that the core does not know.

The path of a report, all in the loop's thread except the save:

    connection -> on_frame -> Counters -> Coordinator.receive -> Members -> CommitPipeline
                                                                            | save, in its own thread
    connection <--------------- messages, TrackedCounter.publish <----------+

A restart and a take-over of a shard are the same: `_recover` loads counters and sessions from the store, and every
coordinator asks its sites for snapshots. Until they have connected and answered, or timed out, answers are `learning`.
"""

import asyncio
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic, time
from typing import Any, TypeVar

from countless.core.answer import State
from countless.core.messages import SiteId
from countless.errors import ProtocolError
from countless.server.connection import Connection, RefusedSites, Turns
from countless.server.kinds.budgets import Budgets
from countless.server.kinds.counter import AnyCounter
from countless.server.kinds.counters import Counters
from countless.server.kinds.families import Families
from countless.server.sessions.counted_kind import CountedKind
from countless.server.sessions.kind import Handler, Kind
from countless.server.sessions.lifecycle import SessionLifecycle
from countless.server.sessions.members import Members
from countless.server.sessions.readable import Readable, Together
from countless.server.sessions.service import Service
from countless.server.sessions.session_table import HEARTBEAT_PER_TIMEOUT, Session, SessionTable, SessionUse
from countless.server.sessions.shares import UNLIMITED, Amounts, Shares, TombstoneShares
from countless.server.sessions.tracked import Spec, Surroundings
from countless.server.settings import Settings
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.health import SaveHealth
from countless.server.storage.rows import StateStore, Tombstone, What
from countless.server.tuning import TUNING, Tuning
from countless.wire.frames import (
    VERSION,
    DownItem,
    Hello,
    HelloAck,
    IncarnationExpired,
    Inherited,
    Sync,
    SyncAck,
    UpItem,
    retired_items,
)
from countless.wire.incarnations import MAX_INCARNATION, first_of, second_of
from countless.wire.keys import BUDGET

KINDS: tuple[Callable[[Service], Kind], ...] = (Counters, Budgets, Families)

K = TypeVar("K", bound=Kind)


class SiteServer:
    """Handles what sites send and what operators want. Belongs to the loop's thread."""

    def __init__(
        self,
        store: StateStore,
        settings: Settings,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
        tuning: Tuning = TUNING,
    ) -> None:
        self.settings = settings
        self.tuning = tuning
        memberships = settings.max_memberships, settings.max_share
        self.sessions = SessionTable(
            Shares(settings.max_sites, settings.max_share),
            SessionUse(Amounts(*memberships), Amounts(*memberships)),
        )
        self.dropped: Tally[str] = Tally()  # refused connections and counters, by reason
        self.refused = RefusedSites(wall_clock)
        self.frame_bytes = {"up": 0, "down": 0}
        self.connections: Shares[object] = Shares(settings.max_connections, settings.max_share)
        self.long_frames = Turns()
        self.partial_bytes = Amounts(1_000_000 * settings.max_partial_mb, settings.max_share)
        self.sum_watches = 0  # watches of sums that wait for their next turn
        self.draining = False
        self._store = store
        self._clock = clock
        self._wall_clock = wall_clock
        self._last_prune = clock()
        self._readings: deque[float] = deque(maxlen=tuning.clock_readings)  # of the wall clock
        self.health = SaveHealth(clock)
        self.health.on_change = self._notify_readers
        self._pipeline = CommitPipeline(store, self.health)
        self.tombstones = TombstoneShares(settings.max_tombstone_mb, settings.max_share, wall_clock)
        self._members = Members(self.sessions, self._pipeline, self.tombstones, settings, self.dropped)
        self._lifecycle = SessionLifecycle(self.sessions, self._members, self._pipeline, settings, clock, self.dropped)
        self._handlers: dict[type, Handler] = {
            Sync: self._on_sync,
            Inherited: self._on_inherited,
            Hello: self._on_second_hello,
        }
        service = self._service()
        self._kinds = [kind(service) for kind in KINDS]
        for each in self._kinds:
            self._members.kinds[each.name] = each
            self._handlers.update(each.handlers)
        self._counted = [each for each in self._kinds if isinstance(each, CountedKind)]
        self._recover()

    def _service(self) -> Service:
        pipeline = self._pipeline
        return Service(
            self.settings,
            self.tuning,
            self._clock,
            Surroundings(self.health, pipeline.changed, pipeline.remove, self._wall_clock, self.tuning.rng),
            self.sessions,
            self._members,
            pipeline,
            self._lifecycle.retire_lost,
        )

    def _recover(self) -> None:
        for kind in self._kinds:
            self._members.load(kind, self._store.load(kind.name), self._clock())
        for session in self.sessions:
            self._set_left(session, self._store.tombstones(session.site_id))
        self._recovering = [(kind, each) for kind in self._counted for each in kind.trackers.values()]

    @property
    def recovering(self) -> bool:
        """True while something is learning after a restart."""
        self._drop_recovered()
        return bool(self._recovering)

    def _drop_recovered(self) -> None:
        """Each is looked at until it has learned: later it may learn for another reason."""
        while self._recovering:
            kind, tracker = self._recovering[-1]
            if tracker.published_answer.state is State.LEARNING and kind.trackers.get(tracker.name) is tracker:
                return
            self._recovering.pop()

    def _set_left(self, session: Session, tombstones: list[Tombstone]) -> None:
        """Set the counts of which it is not a member any more; perhaps another process has delivered them."""
        session.remember(tombstones)
        session.delivered |= any(each.what not in (What.WATERMARK, What.LEFT) for each in tombstones)

    # Lifecycle

    async def run(self) -> None:
        """Save, publish and send, until cancelled."""
        await self._pipeline.run()

    async def flush(self) -> None:
        """Wait until everything so far is saved, published and sent."""
        await self._pipeline.flush()

    async def require_saved(self) -> None:
        """As `flush`, for a caller that has to know: raises StoreError if saves fail."""
        await self._pipeline.require_saved()

    @property
    def failing(self) -> str | None:
        """The reason why nothing can be saved at present; None if saving works."""
        return self.health.failing

    @property
    def servers(self) -> "list[SiteServer]":
        return [self]

    def now(self) -> float:
        return self._clock()

    def drain(self) -> None:
        """Accept no new connection and end every event stream."""
        self.draining = True
        self._notify_readers()

    def _notify_readers(self) -> None:
        for kind in self._counted:
            for each in kind.by_name.values():
                each.notify()

    async def stop(self) -> None:
        """Save what is left. `run` must have been cancelled before."""
        await self._pipeline.stop()
        self.stop_threads()

    def stop_threads(self) -> None:
        """Those of the kinds; nothing is saved."""
        for kind in self._kinds:
            kind.stop()

    def tick(self) -> None:
        for _ in self.tick_in_slices():
            pass

    def tick_in_slices(self) -> Iterator[None]:
        """Expire sessions, close periods of budgets and windows, prune tombstones and start plans. Yields
        between slices, for other work of the loop.
        """
        self._drop_recovered()
        yield from self._lifecycle.expire_in_slices()
        for kind in self._kinds:
            yield from kind.tick()
        now = self._clock()
        if now - self._last_prune > self.tuning.prune_interval_s:
            self._last_prune = now
            self._readings.append(self._wall_clock())
            if len(self._readings) == self.tuning.clock_readings:
                before = int(min(self._readings) - self.settings.remember_for)
                self._pipeline.prune_tombstones(before)
                self.tombstones.forget(before)

    def debug_state(self) -> dict[str, dict[str, int]]:
        return {"pipeline": self._pipeline.debug_state()}

    # Connections

    async def on_hello(self, connection: Connection, hello: Hello, peer: str = UNLIMITED) -> Session | None:
        """Open the session of an incarnation, or continue it on this connection, which the peer has opened.

        None: the incarnation is retired, or may have been. It was told so, and will start a new incarnation.
        """
        if hello.version != VERSION:
            raise ProtocolError(f"protocol version {hello.version} is not supported: this coordinator has {VERSION}")
        if hello.incarnation > MAX_INCARNATION:
            raise ProtocolError("an incarnation has at most 63 bits")
        site_id = SiteId(hello.site, hello.incarnation)
        tombstones: list[Tombstone] = []
        known = self.sessions.get(site_id)
        if known is not None and known.delivered:
            self._lifecycle.renew(known)
        if site_id not in self.sessions:
            await self.require_saved()  # a tombstone that is not saved yet cannot be read
            tombstones, horizon = await asyncio.to_thread(self._read_tombstones, site_id)
            # A site that has left some windows, and is a member of none, may count in the next one.
            retired = any(each.what is not What.WATERMARK for each in tombstones)
            expired = not retired and second_of(site_id.incarnation) < horizon
            given_up = any(kind.has_given_up(site_id) for kind in self._kinds)
            if site_id not in self.sessions and (retired or expired or given_up):
                least = first_of(horizon)
                connection.send([IncarnationExpired(least)] if expired else self._told(tombstones, least))
                return None
            if len(self.sessions) >= self.settings.max_sites:
                raise ProtocolError(f"there are {self.settings.max_sites} sites already (max_sites)")
            if self.sessions.shares.is_full(peer):
                raise ProtocolError(
                    f"this token has {self.sessions.shares.most} sites already (max_share of max_sites)"
                )
        known = self.sessions.get(site_id)
        if known is not None:
            self._require_room_for(known, peer)
        session = known or self.sessions.open(site_id, self._clock())
        if known is None:
            self._set_left(session, tombstones)
        if session.connection is not None:
            self._lifecycle.replace(session, session.connection)
        session.connection, session.last_seen = connection, self._clock()
        session.owed.note_progress()
        if peer != session.peer:
            session.set_peer(peer)
            for kind in self._kinds:
                kind.set_peer(session, peer)
        self.sessions.shares.add(site_id, peer)
        session.unreachable = False  # the core marks it reachable when it joins each counter again
        self._lifecycle.end_connection(session)
        session.new_connection()
        for other in self.sessions.of_site(hello.site):
            if other.unreachable:
                self._lifecycle.retire_lost(other)
        heartbeat_ms = int(self.settings.silent_after * 1000 * HEARTBEAT_PER_TIMEOUT)
        self._pipeline.send(connection, HelloAck(VERSION, heartbeat_ms))
        return session

    def _require_room_for(self, session: Session, peer: str) -> None:
        """A site that connects with another token takes what it has along."""
        if session.peer in (UNLIMITED, peer):
            return
        sites, joined = self.sessions.shares.amounts, self.sessions.used.joined
        fits = sites.fits(peer, 1) and joined.fits(peer, len(session.members))
        if not (fits and all(kind.fits(session, peer) for kind in self._kinds)):
            raise ProtocolError("this token has no room for what the site has used with another (max_share)")

    def _told(self, tombstones: list[Tombstone], least: int) -> list[DownItem]:
        """To an incarnation that is retired: what is known of it."""
        told, counts = list[DownItem](), list[tuple[str, int]]()
        for kind in self._kinds:
            own = [each for each in tombstones if each.key.kind == kind.name]
            told += kind.told(own)
            counts += kind.known_counts(own)
        return [*told, *retired_items(sorted(counts), least, self.tuning.max_frame_bytes)]

    def _read_tombstones(self, site_id: SiteId) -> tuple[list[Tombstone], int]:
        return self._store.tombstones(site_id), self._store.tombstone_horizon()

    def on_frame(self, session: Session, connection: Connection, items: list[UpItem], size: int) -> None:
        """Handle the items of a frame of `size` bytes. A ProtocolError leaves the state as before the wrong item."""
        if session.connection is not connection:
            return
        session.last_seen = self._clock()
        share = size / (len(items) or 1)
        for item in items:
            self._handlers[type(item)](session, connection, item, share)

    def _on_sync(self, session: Session, connection: Connection, item: Sync, size: float) -> None:
        if session.unconfirmed and not session.inherited:
            self._members.lose_unconfirmed(session)
        self._pipeline.send(connection, SyncAck(item.number))

    def _on_inherited(self, session: Session, connection: Connection, item: Inherited, size: float) -> None:
        session.inherited = True

    def _on_second_hello(self, session: Session, connection: Connection, item: Hello, size: float) -> None:
        raise ProtocolError("a second hello")

    def on_disconnect(self, session: Session, connection: Connection) -> None:
        self._lifecycle.disconnect(session, connection)

    def frame_sent(self, items: list[DownItem], size: int) -> None:
        """Account for a frame that left."""
        self.frame_bytes["down"] += size
        for kind in self._kinds:
            kind.frame_sent(items, size)

    # Operators

    @property
    def replaced(self) -> Tally[str]:
        """Live connections, and sessions, that another process has continued."""
        return self._lifecycle.replaced

    @property
    def overflowed(self) -> Tally[str]:
        """By counter: how many of its labelled series were counted in the overflow series."""
        return self.kind(Counters).overflowed

    def kind(self, type_: type[K]) -> K:
        """The one of this type."""
        return next(kind for kind in self._kinds if isinstance(kind, type_))

    @property
    def budgets(self) -> Budgets:
        return self.kind(Budgets)

    @property
    def counters(self) -> dict[str, AnyCounter]:
        return self.kind(Counters).by_name

    @property
    def families(self) -> Families:
        return self.kind(Families)

    def counter(self, name: str) -> AnyCounter:
        return self.kind(Counters).get(name)

    @property
    def by_name(self) -> Mapping[str, Readable]:
        return Together[Readable](*(kind.by_name for kind in self._counted))

    def parts(self, name: str) -> Sequence[Readable]:
        """The parts of which a counter is the sum: its events without labels, and its labelled series. A family is its
        own part. Empty: there is none.
        """
        return next((parts for kind in self._counted if (parts := kind.parts(name))), [])

    @property
    def names(self) -> set[str]:
        """The names of everything that is counted, and of counters that have labelled series only."""
        return {name for kind in self._counted for name in kind.names}

    def spec_of(self, name: str) -> Any:
        return self._counted_kind(name).spec_of(name)

    def create(self, name: str, spec: Spec) -> None:
        self._kind_with(spec).create(name, spec)

    def configure(self, name: str, spec: Spec) -> None:
        """See the method of its kind."""
        self._kind_with(spec).configure(name, spec)

    def delete(self, name: str) -> None:
        """Delete what is counted under a name: a counter with its labelled series."""
        self._counted_kind(name).delete(name)

    def _kind_with(self, spec: Spec) -> CountedKind[Any, Any, Any]:
        return next(kind for kind in self._counted if isinstance(spec, kind.spec_type))

    def _counted_kind(self, name: str) -> CountedKind[Any, Any, Any]:
        """That which has something of this name; the first one, if none has."""
        return next((kind for kind in self._counted if kind.parts(name)), self._counted[0])

    def counted(self, session: Session) -> int:
        """The number of counters, families and open windows of them of which a session is a member."""
        return sum(key.kind != BUDGET for key in session.members)

    def drop_site(self, site: str) -> int:
        """Retire the sessions of a site that have no connection; returns how many."""
        sessions = [session for session in self.sessions.of_site(site) if session.connection is None]
        for session in sessions:
            self._members.retire(session)
        return len(sessions)

    def drop_silent(self, for_s: float) -> int:
        """Retire the sessions that have no connection and were not seen for so long; returns how many."""
        before = self._clock() - for_s
        sessions = [each for each in self.sessions if each.connection is None and each.last_seen <= before]
        for session in sessions:
            self._members.retire(session)
        return len(sessions)
