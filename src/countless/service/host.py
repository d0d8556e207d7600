"""The host: one asyncio loop around the core. It has the connections, the clock and the disk that the core has not.

Everything here runs in the loop's thread except two things that take time: the disk and the planner have a thread each.
An input goes to the core at once; what the core returns goes to the post, which saves before it sends.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from sys import intern
from time import monotonic, time

from countless.core.coordinator import Outbox
from countless.core.messages import Address, DownMessage, Report, Snapshot, StartRound
from countless.errors import InvalidParameter, PlanError, ProtocolError, UnknownName
from countless.service.counter import Counter
from countless.service.lives import HEARTBEAT, Life, Line, Lives
from countless.service.overflow import Families, spoken
from countless.service.planner import Planner
from countless.service.post import Post
from countless.service.seats import Seats
from countless.service.settings import Settings, require_config
from countless.service.store import Config, Store
from countless.transports.frames import (
    VERSION,
    Again,
    Buried,
    DownItem,
    Hello,
    Join,
    Leave,
    Left,
    Refused,
    Sync,
    Synced,
    UpItem,
    Welcome,
    require_name,
)

_LARGEST_INCARNATION = 1 << 63
_BIRTH = 30  # bits of an incarnation below the second in which its life began
_PRUNE_EVERY = 60.0  # seconds
_AT_ONCE = 500  # sites looked at: a millisecond or two


class Host:
    """All counters, all sites."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        self.settings = settings
        self.counters: dict[str, Counter] = {}
        self.families = Families()
        self._seats = Seats(settings, self.counters, self.families)
        self.lives = Lives()
        self.dropped: Tally[str] = Tally()  # connections and counters refused, by reason
        self.frame_bytes: Tally[str] = Tally(up=0, down=0)
        self.connections = 0
        self.draining = False
        self._store = store
        self._clock = clock
        self._wall_clock = wall_clock
        self._pruned_at = clock()
        self._post = Post(store, self.counters)
        self.planner = Planner()
        self._load()

    def _load(self) -> None:
        now = self._clock()
        for name, (config, memory) in self._store.load().items():
            counter = self.counters[name] = Counter(name, config, memory)
            self.families.add(name)
            for address, _ in memory.known:
                said, home = spoken(name, address)
                life = self.lives.enter(home, now)
                life.counters[said] = life.address if home == address else address
            self._do(counter, counter.wake())
        for life in self.lives:
            life.left.update(name for name, _ in self._store.buried(life.address))

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
        address = Address(hello.site, hello.incarnation)
        if address not in self.lives:
            await self.settled()
            known, horizon = await asyncio.to_thread(self._past, address)
            if known and address not in self.lives:
                line.send([Buried(known)])
                return None
            if address.incarnation >> _BIRTH < horizon:
                raise ProtocolError("this life began before all that is remembered of lives that ended: begin another")
            if len(self.lives) >= self.settings.max_sites:
                raise ProtocolError(f"there are {self.settings.max_sites} sites already (max_sites)")
        life = self.lives.enter(address, self._clock())
        if life.line is not None:
            life.line.close(1008, "another connection of the same life has come")
        life.line, line.heard, life.asked = line, self._clock(), None
        life.silent = False  # the core hears it counter by counter
        for other in self.lives.named(hello.site):
            if other.silent and other is not life:
                self._bury(other)
        self._post.send(line, Welcome(VERSION, int(self.settings.silent_after * 1000 * HEARTBEAT)))
        return life

    def _past(self, address: Address) -> tuple[tuple[tuple[str, int], ...], int]:
        return self._store.buried(address), self._store.pruned_before()

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
                self._post.send(line, Synced(item.number))
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

    def lost(self, life: Life, line: Line) -> None:
        """A connection has gone; the life may come back on another."""
        self._post.lost(line)
        if life.line is line:
            life.heard = life.last_heard() if life.silent else self._clock()  # hanging up is a sign of life too
            life.line = life.asked = None
            if not life.counters:
                self.lives.remove(life)

    def _join(self, life: Life, line: Line, join: Join, size: float) -> None:
        if join.counter in life.left:  # it did not hear that its last word had arrived
            self._ignore(line, join.counter)
            return self._post.send(line, Left(join.counter))
        try:
            counter, address = self._seats.offer(life, join.counter, self.create)
            if join.round > counter.coordinator.round:  # this coordinator has lost its memory, or it was deleted
                self._ignore(line, join.counter)
                return self._post.send(line, Again(join.counter, keep=True))
            outbox = counter.coordinator.join(address, Snapshot(*join))
        except (InvalidParameter, PlanError) as error:
            self.dropped["counter refused"] += 1
            self._ignore(line, join.counter)
            return self._post.send(line, Refused(join.counter, str(error)))
        line.void.discard(join.counter)
        life.counters[intern(join.counter)] = address  # the same text as in thousands of other lives
        self._heard(counter, address, size)
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
        address = life.counters.get(name)
        if address is life.address:
            counter = self.counters[name]
        elif address is not None:
            counter, address = self._seats.of(life, name)
        elif name in life.left:
            return self._post.send(line, Left(name))
        else:
            raise ProtocolError(f"site {life.address.site!r} has not joined {name!r}")
        outbox = counter.coordinator.receive(address, message)
        traffic = counter.traffic  # `_heard`, without the call
        traffic.up += 1
        traffic.up_bytes += size
        self._post.heard(counter.name, address)
        return self._do(counter, outbox) if outbox else None

    def _leave(self, life: Life, line: Line, farewell: Leave, size: float) -> None:
        name = farewell.counter
        if name in line.void:
            return
        if name not in life.left:
            if name not in life.counters:
                raise ProtocolError(f"site {life.address.site!r} has not joined {name!r}")
            counter, address = self._seats.of(life, name)
            known = max(farewell.count, counter.coordinator.known_of(address))
            outbox = counter.coordinator.leave(address, Snapshot(*farewell))
            self._heard(counter, address, size)
            life.left.add(name)
            self._gone(counter, life, name, known)
            self._do(counter, outbox)
        self._post.send(line, Left(name))

    def _heard(self, counter: Counter, address: Address, size: float) -> None:
        traffic = counter.traffic
        traffic.up += 1
        traffic.up_bytes += size
        self._post.heard(counter.name, address)

    # Silence, and the end of a life

    def _silence(self, life: Life) -> None:
        life.silent = True
        if life.line is not None:
            life.line.close(1001, "no sign of life")
            self.lost(life, life.line)
        for _, counter, address in self._seats.all(life):
            self._do(counter, counter.coordinator.silence(address))

    def _bury(self, life: Life) -> None:
        for name, counter, address in self._seats.all(life):
            known = counter.coordinator.known_of(address)
            outbox = counter.coordinator.leave(address, Snapshot(name, counter.coordinator.round, known))
            self._gone(counter, life, name, known)
            self._do(counter, outbox)
        self.lives.remove(life)

    def _gone(self, counter: Counter, life: Life, name: str, known: int) -> None:
        address = life.counters.pop(name)
        counter.departed += known
        self._post.gone((counter.name, address), (name, life.address), known)

    # What operators ask for

    def counter(self, name: str) -> Counter:
        """The counter of this name."""
        try:
            return self.counters[name]
        except KeyError:
            raise UnknownName("counter", name, self.counters) from None

    def create(self, name: str, config: Config) -> Counter:
        """A new counter."""
        try:
            require_name(name, "counter")
        except ProtocolError as error:
            raise InvalidParameter("counter", name, str(error)) from None
        require_config(config)
        if name in self.counters:
            raise InvalidParameter("counter", name, "a name that is not taken")
        self._seats.require_room(name)
        counter = self.counters[name] = Counter(name, config)
        self.families.add(name)
        self._post.configured(name, config)
        return counter

    def configure(self, name: str, config: Config) -> Counter:
        """Other rules for a counter that exists. Its alpha may only grow: what was published cannot be taken back."""
        before = self.counter(name)
        require_config(config)
        if config.alpha < before.config.alpha:
            raise InvalidParameter("alpha", config.alpha, f"at least {before.config.alpha}, which it has had so far")
        if config == before.config:
            return before
        counter = self.counters[name] = before.reconfigured(config)
        self._post.configured(name, config)
        self._do(counter, counter.wake())
        for life in self.lives:
            for said in self._seats.names(life, counter) if life.silent else ():
                self._do(counter, counter.coordinator.silence(life.counters[said]))
        return counter

    def delete(self, name: str) -> None:
        """Forget a counter. Sites that are connected begin again from nothing."""
        counter = self.counter(name)
        for life in self.lives:
            for said in self._seats.names(life, counter):
                del life.counters[said]
                if life.line is not None:
                    life.line.void.add(said)
                    self._post.send(life.line, Again(said, keep=False))
            life.left.discard(name)
        del self.counters[name]
        self.families.remove(name)
        self._post.deleted(name)
        counter.news.set()

    def forget(self, site: str) -> int:
        """Give up the lives of a site that are not connected; how many there were."""
        lives = [life for life in self.lives.named(site) if life.line is None]
        for life in lives:
            self._bury(life)
        return len(lives)

    # To be saved, then sent

    def _do(self, counter: Counter, outbox: Outbox) -> None:
        self._post.touched(counter.name)
        for address, message in outbox:
            name, home = spoken(counter.name, address)
            life = self.lives.get(home)
            if life is not None and life.line is not None and name not in life.line.void:
                counter.traffic.down += 1
                if isinstance(message, StartRound) and life.asked is None:
                    life.asked = self._clock()
                self._post.send(life.line, message if name == counter.name else message._replace(counter=name))
