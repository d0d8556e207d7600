"""A coordinator, its sites and the network between them in one process: no message is ever late.

`World` serves all kinds. `TrackedTotal` is the world of a counter, `LabelWorld` that of a family; those of budgets are
in `accounts.py`. `Roster` has the names by which a program finds its sites.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar

from countless.client.local_counter import LocalCounter
from countless.core.answer import Answer
from countless.core.coordinator import Coordinator
from countless.core.estimator import Scheme
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.messages import Totals
from countless.core.family.site import FamilySite
from countless.core.machine import Machine
from countless.core.messages import Message, SiteId, SiteName, UpMessage
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.errors import InvalidParameter, ProtocolError, UnknownName
from countless.randomness import SeededRandom, SystemRandom
from countless.wire.codec import encode

Outbox = list[tuple[SiteId, Any]]
Tap = Callable[[SiteId, Any], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages sent so far. `bytes` is their encoded size, or None unless the owner asked for `count_bytes`."""

    up: int
    down: int
    bytes: int | None = None

    @property
    def total(self) -> int:
        """Messages in both directions."""
        return self.up + self.down

    @property
    def words(self) -> int:
        """The paper's unit of communication: one word for each message."""
        return self.total


class Meter:
    """Counts the messages of one world, or of all windows together.

    Each of the `taps` sees every message before its receiver does. To add up the bytes, every message is encoded, which
    takes longer than delivering it: messages of counters only.
    """

    __slots__ = ("bytes", "down", "taps", "up")

    def __init__(self, tap: Tap | None = None, *, count_bytes: bool = False) -> None:
        self.up = self.down = 0
        self.bytes: int | None = None
        self.taps: list[Tap] = [] if tap is None else [tap]
        if count_bytes:
            self.bytes = 0
            self.taps.append(self._add_size)

    @property
    def traffic(self) -> Traffic:
        return Traffic(self.up, self.down, self.bytes)

    def tap(self, site_id: SiteId, message: object) -> None:
        for tap in self.taps:
            tap(site_id, message)

    def _add_size(self, site_id: SiteId, message: Message) -> None:
        self.bytes = (self.bytes or 0) + len(encode(message))


class Addressee(Protocol):
    """A site, as the network sees it: a plain `Site` in a simulation, a counter shared by threads in a `Tracker`."""

    def receive(self, message: Any, /) -> Sequence[Any]: ...


M = TypeVar("M", bound=Machine[Any, Any])
S = TypeVar("S", bound=Addressee)


class World(Generic[M, S]):
    """Messages are delivered in the order in which they were sent, before the call that caused them returns."""

    def __init__(self, coordinator: M, sites: dict[SiteId, S], meter: Meter | None = None) -> None:
        self.coordinator = coordinator
        self.sites = sites
        self.meter = meter or Meter()

    @property
    def traffic(self) -> Traffic:
        return self.meter.traffic

    def add_site(self, site_id: SiteId, site: S, join: Callable[[SiteId, T], Outbox], hello: T) -> Outbox:
        """`join` is that of the coordinator. If it raises, nothing has changed. Returns all messages to sites."""
        outbox = join(site_id, hello)
        self.sites[site_id] = site
        self._count_up(site_id, hello)
        return self.deliver(outbox)

    def remove_site(self, site_id: SiteId, leave: Callable[[SiteId, T], Outbox], last: T) -> Outbox:
        """`leave` is that of the coordinator. What it still sends to this site does not arrive."""
        outbox = [each for each in leave(site_id, last) if each[0] != site_id]
        del self.sites[site_id]
        self._count_up(site_id, last)
        return self.deliver(outbox)

    def send(self, site_id: SiteId, messages: Iterable[Any], outbox: Outbox | None = None) -> Outbox:
        """Deliver what a site sends, then the outbox, and all that follows. Returns all messages to sites."""
        outbox = [] if outbox is None else outbox
        meter, receive, undelivered = self.meter, self.coordinator.receive, iter(outbox)
        while True:
            for message in messages:
                meter.up += 1
                if meter.taps:
                    meter.tap(site_id, message)
                if replies := receive(site_id, message):
                    outbox += replies
            down = next(undelivered, None)  # the iterator sees what was appended
            if down is None:
                return outbox
            site_id, message = down
            meter.down += 1
            if meter.taps:
                meter.tap(site_id, message)
            messages = self.sites[site_id].receive(message)

    def deliver(self, outbox: Outbox) -> Outbox:
        """Deliver what the coordinator sends, and all that follows from it. Returns all messages to sites."""
        return self.send(outbox[0][0], (), outbox) if outbox else outbox

    def _count_up(self, site_id: SiteId, message: object) -> None:
        self.meter.up += 1
        if self.meter.taps:
            self.meter.tap(site_id, message)


class TrackedTotal(World[Coordinator, LocalCounter]):
    """The world of one counter. Everything is called with the lock held, except `add` of its sites: that calls
    `changed` after a delivery if there are `listeners`.
    """

    def __init__(
        self,
        counter: str,
        scheme: Scheme,
        rng: SystemRandom | SeededRandom,
        lock: RLock,
        meter: Meter,
        listeners: Sequence[object],
        changed: Callable[[], None],
        *,
        alpha: float,
        delta: float,
        floor: int = 0,
        expected_sites: int = 0,
        fleet: Sequence[SiteId] = (),
    ) -> None:
        coordinator = Coordinator(
            counter,
            scheme,
            rng.spawn("coordinator"),
            alpha=alpha,
            delta=delta,
            floor=floor,
            expected_sites=expected_sites,
            fleet=fleet,
        )
        super().__init__(coordinator, {}, meter)
        self._rng = rng
        self._lock = lock
        self._listeners = listeners
        self._changed = changed
        self._departed = 0  # events counted by sites that have left
        for site_id in fleet:
            self.sites[site_id] = self._shared(self._new_site(site_id, coordinator.trigger_of(site_id)))

    @property
    def answer(self) -> Answer:
        return self.coordinator.answer

    @property
    def estimate(self) -> float:
        return self.coordinator.estimate

    @property
    def total(self) -> int:
        return self._departed + sum(site.count for site in self.sites.values())

    def join(self, site_id: SiteId, count: int = 0) -> LocalCounter:
        """A site joins with what it has counted. If there is no plan for so many sites, nothing changes."""
        site = self._new_site(site_id, count=count)
        self.add_site(site_id, self._shared(site), self.coordinator.join, site.snapshot())
        return self.sites[site_id]

    def leave(self, site_id: SiteId) -> int:
        """The exact last count of the site, which stays in the total."""
        final = self.sites[site_id].close()
        self._departed += final.count
        self.remove_site(site_id, self.coordinator.leave, final)
        return final.count

    def _new_site(self, site_id: SiteId, trigger: Trigger | None = None, count: int = 0) -> Site:
        rng = self._rng.spawn("site", *site_id[:2])
        return Site(self.coordinator.counter, site_id, rng, trigger=trigger, count=count)

    def _shared(self, site: Site) -> LocalCounter:
        return LocalCounter(site, self._lock, self._deliver)

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.send(site.site_id, messages)
        if self._listeners:
            self._changed()


class LabelWorld(World[FamilyCoordinator, FamilySite]):
    """The world of one family. Everything is called with the lock held."""

    def __init__(
        self,
        coordinator: FamilyCoordinator,
        fleet: Iterable[SiteId],
        new_site: Callable[[SiteId], FamilySite],
        meter: Meter | None = None,
    ) -> None:
        super().__init__(coordinator, {site_id: new_site(site_id) for site_id in fleet}, meter)
        self.new_site = new_site

    def add(self, site_id: SiteId, label: str, n: int) -> None:
        if site_id not in self.sites:
            raise InvalidParameter("site", site_id.site, "a site that was not removed")
        if messages := self.sites[site_id].add(label, n):
            self.send(site_id, messages)

    def join(self, site_id: SiteId) -> None:
        site = self.new_site(site_id)
        self.add_site(site_id, site, self.coordinator.join, site.sync())

    def leave(self, site_id: SiteId) -> int:
        """The events that the site has counted: they stay in the counts."""
        site = self.sites[site_id]
        *reports, last = site.leave()
        if not isinstance(last, Totals):
            raise ProtocolError(f"{site_id} left with {last}")
        self.send(site_id, reports)
        self.remove_site(site_id, self.coordinator.leave, last)
        return site.total


class Roster(dict[SiteName, T]):
    """The sites of a program by name. A name that is used again gets the next incarnation."""

    def __init__(self) -> None:
        self._incarnations: dict[SiteName, int] = {}

    def find(self, name: SiteName) -> T:
        try:
            return self[name]
        except (KeyError, TypeError):
            raise UnknownName("site", name, self) from None

    def next_id(self, name: SiteName | None) -> SiteId:
        """The id of another site. Without a name it gets the next free number."""
        if name is None:
            name = len(self)
            while name in self:
                name += 1
        _require_name(name)
        if name in self:
            raise InvalidParameter("site", name, "a name that is not taken")
        return SiteId(name, self._incarnations.get(name, 0))

    def add(self, site_id: SiteId, site: T) -> T:
        self[site_id.site] = site
        return site

    def remove(self, name: SiteName) -> SiteId:
        self.find(name)
        del self[name]
        incarnation = self._incarnations.get(name, 0)
        self._incarnations[name] = incarnation + 1
        return SiteId(name, incarnation)


def fleet_of(sites: int | Iterable[SiteName]) -> list[SiteId]:
    """The first incarnations of so many sites, named 0, 1, 2, ..., or of these names."""
    if isinstance(sites, bool | str | bytes) or not isinstance(sites, int | Iterable):
        raise InvalidParameter("sites", sites, "a number of sites or a collection of their names")
    if isinstance(sites, int):
        if sites < 1:
            raise InvalidParameter("sites", sites, "at least 1; a fleet that only grows by add_site begins with []")
        return [SiteId(name) for name in range(sites)]
    names = list(sites)
    for name in names:
        _require_name(name)
    if len(set(names)) != len(names):
        raise InvalidParameter("sites", names, "names that all differ")
    return [SiteId(name) for name in names]


def _require_name(name: object) -> None:
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise InvalidParameter("site", name, "a string or an integer")
