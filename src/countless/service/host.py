"""The host: one asyncio loop around the core. It has the connections, the clock and the disk that the core has not.

Everything here runs in the loop's thread except two things that take time: the disk and the planner have a thread each.
An input goes to the core at once; what the core returns goes to the post, which saves before it sends.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Callable
from time import monotonic

from countless.core.coordinator import Outbox
from countless.core.messages import Address, DownMessage, Report, Snapshot
from countless.errors import InvalidParameter, PlanError, ProtocolError, UnknownName
from countless.service.counter import Counter
from countless.service.lives import Life, Line, Lives
from countless.service.planner import Planner
from countless.service.post import Post
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


class Host:
    """All counters, all sites."""

    def __init__(self, store: Store, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        self.settings = settings
        self.counters: dict[str, Counter] = {}
        self.lives = Lives()
        self.dropped: Tally[str] = Tally()  # connections and counters refused, by reason
        self.frame_bytes: Tally[str] = Tally(up=0, down=0)
        self.connections = 0
        self.draining = False
        self._store = store
        self._clock = clock
        self._post = Post(store, self.counters)
        self.planner = Planner()
        self._load()

    def _load(self) -> None:
        now = self._clock()
        for name, (config, memory) in self._store.load().items():
            counter = self.counters[name] = Counter(name, config, memory)
            for address, _ in memory.known:
                self.lives.enter(address, now).counters.add(name)
            self._do(counter, counter.wake())
        for address, name, _ in self._store.half_gone():
            self.lives.enter(address, now).left.add(name)

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
        now = self._clock()
        for life in self.lives:
            quiet = now - life.last_heard()
            if quiet > self.settings.silent_after and not life.silent:
                self._silence(life)
            expired = 0 < self.settings.forget_after < quiet
            if life.silent and life.counters and (expired or self.lives.superseded(life)):
                self._bury(life)
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
            known = await asyncio.to_thread(self._store.buried, address)
            if known and address not in self.lives:
                line.send([Buried(known)])
                return None
            if len(self.lives) >= self.settings.max_sites:
                raise ProtocolError(f"there are {self.settings.max_sites} sites already (max_sites)")
        life = self.lives.enter(address, self._clock())
        if life.line is not None:
            life.line.close(1008, "another connection of the same life has come")
        life.line, line.heard, life.silent = line, self._clock(), False  # the core hears it counter by counter
        for other in self.lives.named(hello.site):
            if other.silent and other is not life:
                self._bury(other)
        self._post.send(line, Welcome(VERSION, int(self.settings.silent_after * 1000 / 3)))
        return life

    def hear(self, life: Life, line: Line, items: list[UpItem], size: int) -> None:
        """A frame of `size` bytes. A ProtocolError leaves everything as it was before the offending item."""
        if life.line is not line:
            return
        line.heard = self._clock()
        share = size / max(1, len(items))
        for item in items:
            if isinstance(item, Report | Snapshot | Leave):
                if item.counter not in line.void:
                    self._message(life, line, item, share)
            elif isinstance(item, Join):
                self._join(life, line, item, share)
            elif isinstance(item, Sync):
                self._post.send(line, Synced(item.number))
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
            life.heard, life.line = life.last_heard(), None
            if not life.counters:
                self.lives.remove(life)

    def _join(self, life: Life, line: Line, join: Join, size: float) -> None:
        if join.counter in life.left:  # it did not hear that its last word had arrived
            line.void.add(join.counter)
            return self._post.send(line, Left(join.counter))
        try:
            counter = self._counter_for(life, join.counter)
            if (
                join.round > counter.coordinator.round
            ):  # this coordinator has lost its memory, or the counter was deleted
                line.void.add(join.counter)
                return self._post.send(line, Again(join.counter, keep=True))
            outbox = counter.coordinator.join(life.address, Snapshot(*join))
        except (InvalidParameter, PlanError) as error:
            self.dropped["counter refused"] += 1
            line.void.add(join.counter)
            return self._post.send(line, Refused(join.counter, str(error)))
        line.void.discard(join.counter)
        life.counters.add(join.counter)
        self._heard(counter, life, size)
        return self._do(counter, outbox)

    def _counter_for(self, life: Life, name: str) -> Counter:
        if len(life.counters) >= self.settings.max_counters_per_site and name not in life.counters:
            raise InvalidParameter("counter", name, "one of fewer (max_counters_per_site)")
        return self.counters.get(name) or self.create(name, self.settings.defaults)

    def _message(self, life: Life, line: Line, message: Report | Snapshot | Leave, size: float) -> None:
        if message.counter in life.left:
            return self._post.send(line, Left(message.counter))
        if message.counter not in life.counters:
            raise ProtocolError(f"site {life.address.site!r} has not joined {message.counter!r}")
        counter = self.counters[message.counter]
        if not isinstance(message, Leave):
            outbox = counter.coordinator.receive(life.address, message)
            self._heard(counter, life, size)
            return self._do(counter, outbox)
        known = max(message.count, counter.coordinator.known_of(life.address))
        outbox = counter.coordinator.leave(life.address, Snapshot(*message))
        self._heard(counter, life, size)
        life.left.add(message.counter)
        self._gone(counter, life, known)
        self._do(counter, outbox)
        return self._post.send(line, Left(message.counter))

    def _heard(self, counter: Counter, life: Life, size: float) -> None:
        counter.traffic.up += 1
        counter.traffic.up_bytes += size
        self._post.heard(counter.name, life.address)

    # Silence, and the end of a life

    def _silence(self, life: Life) -> None:
        life.silent = True
        if life.line is not None:
            life.line.close(1001, "no sign of life")
            self.lost(life, life.line)
        for name in life.counters:
            self._do(self.counters[name], self.counters[name].coordinator.silence(life.address))

    def _bury(self, life: Life) -> None:
        for name in sorted(life.counters):
            counter = self.counters[name]
            known = counter.coordinator.known_of(life.address)
            outbox = counter.coordinator.leave(life.address, Snapshot(name, counter.coordinator.round, known))
            self._gone(counter, life, known)
            self._do(counter, outbox)
        self.lives.remove(life)

    def _gone(self, counter: Counter, life: Life, known: int) -> None:
        life.counters.discard(counter.name)
        counter.departed += known
        self._post.gone(counter.name, life.address, known)

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
        if len(self.counters) >= self.settings.max_counters:
            raise InvalidParameter("counter", name, f"one of at most {self.settings.max_counters} (max_counters)")
        counter = self.counters[name] = Counter(name, config)
        self._do(counter, [])
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
        self._do(counter, counter.wake())
        for life in self.lives:
            if life.silent and name in life.counters:
                self._do(counter, counter.coordinator.silence(life.address))
        return counter

    def delete(self, name: str) -> None:
        """Forget a counter. Sites that are connected begin again from nothing."""
        counter = self.counter(name)
        del self.counters[name]
        self._post.deleted(name)
        for life in self.lives:
            life.left.discard(name)
            if name in life.counters:
                life.counters.discard(name)
                if life.line is not None:
                    life.line.void.add(name)
                    self._post.send(life.line, Again(name, keep=False))
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
            life = self.lives.get(address)
            if life is not None and life.line is not None and counter.name not in life.line.void:
                counter.traffic.down += 1
                self._post.send(life.line, message)
