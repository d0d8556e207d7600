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
from countless.server.sessions.registry import Roster
from countless.server.sessions.session_table import HEARTBEAT, Life, Line
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


class Host(Roster):
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
        self.connections = 0
        self.draining = False
        self._wall_clock = wall_clock
        self._pruned_at = clock()
        self.planner = Planner()

    # Time

    async def run(self) -> None:
        """Save and send, until cancelled."""
        await self._post.run()

    async def settled(self) -> None:
        """Wait until everything that has happened so far is on the disk and can be seen."""
        await self._post.settled()

    @property
    def failing(self) -> str | None:
        """Why nothing can be saved at present, if so."""
        return self._post.failing

    def fail(self, reason: str) -> None:
        """For good."""
        self._post.failing = reason

    def now(self) -> float:
        """The host's clock."""
        return self._clock()

    def drain(self) -> None:
        """Nobody new comes in, and whoever watches is let go."""
        self.draining = True
        for counter in self.counters.values():
            counter.news.set()

    async def stop(self) -> None:
        """The last save."""
        await self._post.stop()
        self.planner.stop()

    def tick(self) -> None:
        """Now and then: who has fallen silent, and what should be planned ahead?"""
        for _ in self.ticking():
            pass

    def ticking(self) -> Iterator[None]:
        """The same with breaks, so that nobody waits until thousands of sites have been looked at."""
        now, silent_after = self._clock(), self.settings.silent_after
        for number, life in enumerate(self.lives, start=1):
            if number % _AT_ONCE == 0:
                yield
            if life.line is not None and life.asked is None and now - life.line.heard <= silent_after:
                continue  # nearly all of them, nearly always
            if not life.silent and life.overdue(now, silent_after):
                self._silence(life)
            expired = 0 < self.settings.forget_after < now - life.last_heard()
            if life.silent and life.counters and (expired or self.lives.superseded(life)):
                self._bury(life)
        if now - self._pruned_at > _PRUNE_EVERY:
            self._pruned_at = now
            self._post.prune(int(self._wall_clock() - self.settings.remember_for))
        self.planner.look(self.counters.values())

    # What connections bring

    async def hello(self, line: Line, hello: Hello) -> Life | None:
        """A connection says who it is. None: that life was given up, and the line has been told what is known of it."""
        if hello.version != VERSION:
            raise ProtocolError(f"this coordinator speaks version {VERSION} of the protocol, not {hello.version}")
        if hello.incarnation >= _LARGEST_INCARNATION:
            raise ProtocolError("an incarnation has at most 63 bits")
        site_id = SiteId(hello.site, hello.incarnation)
        if site_id not in self.lives:
            await self.settled()
            known, horizon = await asyncio.to_thread(self._past, site_id)
            if known and site_id not in self.lives:
                line.send([IncarnationRetired(known)])
                return None
            if site_id.incarnation >> _BIRTH < horizon:
                raise ProtocolError("this life began before all that is remembered of lives that ended: begin another")
            if len(self.lives) >= self.settings.max_sites:
                raise ProtocolError(f"there are {self.settings.max_sites} sites already (max_sites)")
        life = self.lives.enter(site_id, self._clock())
        if life.line is not None:
            life.line.close(1008, "another connection of the same life has come")
        life.line, line.heard, life.asked = line, self._clock(), None
        life.silent = False  # the core hears it counter by counter
        for other in self.lives.named(hello.site):
            if other.silent and other is not life:
                self._bury(other)
        self._post.send(line, HelloAck(VERSION, int(self.settings.silent_after * 1000 * HEARTBEAT)))
        return life

    def _past(self, site_id: SiteId) -> tuple[tuple[tuple[str, int], ...], int]:
        return self._store.tombstones(site_id), self._store.tombstone_horizon()

    def hear(self, life: Life, line: Line, items: list[UpItem], size: int) -> None:
        """A frame of `size` bytes. A ProtocolError leaves everything as it was before the offending item."""
        if life.line is not line:
            return
        line.heard, life.asked = self._clock(), None
        share = size / (len(items) or 1)
        for item in items:
            if isinstance(item, (Report, Snapshot)):
                self._message(life, line, item, share)
            elif isinstance(item, Join):
                self._join(life, line, item, share)
            elif isinstance(item, Sync):
                self._post.send(line, SyncAck(item.number))
            elif isinstance(item, Leave):
                self._leave(life, line, item, share)
            else:
                raise ProtocolError("a second hello")

    def sent(self, items: list[DownItem], size: int) -> None:
        """A frame has gone out."""
        self.frame_bytes["down"] += size
        for item in items:
            if isinstance(item, DownMessage) and item.counter in self.counters:
                self.counters[item.counter].traffic.down_bytes += size / len(items)

    def _join(self, life: Life, line: Line, join: Join, size: float) -> None:
        if join.counter in life.left:  # it did not hear that its last word had arrived
            self._ignore(line, join.counter)
            return self._post.send(line, LeaveAck(join.counter))
        try:
            counter, site_id = self._seats.offer(life, join.counter, self.create)
            if join.round > counter.coordinator.round:  # this coordinator has lost its memory, or it was deleted
                self._ignore(line, join.counter)
                return self._post.send(line, Rejoin(join.counter, keep_count=True))
            outbox = counter.coordinator.join(site_id, Snapshot(*join))
        except (InvalidParameter, PlanError) as error:
            self.dropped["counter refused"] += 1
            self._ignore(line, join.counter)
            return self._post.send(line, CounterRejected(join.counter, str(error)))
        line.void.discard(join.counter)
        life.counters[intern(join.counter)] = site_id  # the same text as in thousands of other lives
        self._heard(counter, site_id, size)
        return self._do(counter, outbox)

    def _ignore(self, line: Line, name: str) -> None:
        """Until it is joined anew."""
        if len(line.void) >= self.settings.max_counters_per_site:
            raise ProtocolError("too many counters that are not taken in (max_counters_per_site)")
        line.void.add(name)

    def _message(self, life: Life, line: Line, message: Report | Snapshot, size: float) -> None:
        name = message.counter
        if name in line.void:
            return None
        site_id = life.counters.get(name)
        if site_id is life.site_id:
            counter = self.counters[name]
        elif site_id is not None:
            counter, site_id = self._seats.of(life, name)
        elif name in life.left:
            return self._post.send(line, LeaveAck(name))
        else:
            raise ProtocolError(f"site {life.site_id.site!r} has not joined {name!r}")
        outbox = counter.coordinator.receive(site_id, message)
        traffic = counter.traffic  # `_heard`, without the call
        traffic.up += 1
        traffic.up_bytes += size
        self._post.heard(counter.name, site_id)
        return self._do(counter, outbox) if outbox else None

    def _leave(self, life: Life, line: Line, farewell: Leave, size: float) -> None:
        name = farewell.counter
        if name in line.void:
            return
        if name not in life.left:
            if name not in life.counters:
                raise ProtocolError(f"site {life.site_id.site!r} has not joined {name!r}")
            counter, site_id = self._seats.of(life, name)
            known = max(farewell.count, counter.coordinator.reported_by(site_id))
            outbox = counter.coordinator.leave(site_id, Snapshot(*farewell))
            self._heard(counter, site_id, size)
            life.left.add(name)
            self._gone(counter, life, name, known)
            self._do(counter, outbox)
        self._post.send(line, LeaveAck(name))

    def _heard(self, counter: Counter, site_id: SiteId, size: float) -> None:
        traffic = counter.traffic
        traffic.up += 1
        traffic.up_bytes += size
        self._post.heard(counter.name, site_id)
