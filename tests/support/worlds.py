"""Worlds of production sites and a coordinator: one delivers messages at once, in the other they wait for the test."""

from collections.abc import Iterable

from countless.core.coordinator import Coordinator, PersistentCounter
from countless.core.estimator import Scheme
from countless.core.messages import (
    DownMessage,
    Message,
    Outbox,
    Report,
    SiteId,
    SiteName,
    Snapshot,
    StartRound,
    UpMessage,
)
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.inprocess import world as inprocess
from countless.randomness import SeededRandom
from countless_lab.simulation import world as simulation

COUNTER = "hits"


class World(simulation.World):
    """The lab's world with a transcript, a coordinator that restarts, and sites that reconnect."""

    def __init__(self, scheme: Scheme, sites: int, *, alpha: float = 0.1, delta: float = 1e-9, seed: int = 1) -> None:
        self.transcript: list[tuple[SiteId, Message]] = []
        self._scheme, self._alpha, self._delta = scheme, alpha, delta
        super().__init__(scheme, sites, alpha=alpha, delta=delta, seed=seed, tap=self._record)

    def _record(self, site_id: SiteId, message: Message) -> None:
        self.transcript.append((site_id, message))

    def restart(self, *, deliver: bool = True) -> None:
        """Another coordinator starts from the saved state; without `deliver` its first messages are lost."""
        self.coordinator = Coordinator(
            simulation.COUNTER,
            self._scheme,
            self._rng.spawn("coordinator"),
            alpha=self._alpha,
            delta=self._delta,
            saved_state=self.coordinator.saved_state,
        )
        self._world = inprocess.World(self.coordinator, self._world.sites, self._world.meter)
        outbox = self.coordinator.recover()
        if deliver:
            self._world.deliver(outbox)

    def reconnect(self, name: SiteName) -> None:
        site = self.site(name)
        self._world.add_site(site.site_id, site, self.coordinator.join, site.snapshot())
        self.send(site, site.resend())


class HeldWorld:
    """Messages wait on `wire` until the test delivers, repeats or loses them.

    It is not based on the lab's worlds, because those decide themselves when a message is delivered.
    """

    def __init__(
        self,
        scheme: Scheme,
        fleet: Iterable[SiteId],
        *,
        alpha: float,
        delta: float = 0.1,
        seed: int = 1,
        floor: int = 0,
        expected_sites: int = 1,
    ) -> None:
        self._scheme, self._alpha, self._delta = scheme, alpha, delta
        self._floor, self._expected_sites = floor, expected_sites
        self._rng = SeededRandom(seed)
        self.wire: list[tuple[SiteId, Message]] = []
        self.sites: dict[SiteId, Site] = {}
        self.departed = 0  # final counts of the sites that left
        fleet = tuple(fleet)
        self.coordinator = self._start_coordinator(fleet)
        for site_id in fleet:
            self._create(site_id, self.coordinator.trigger_of(site_id))

    def _start_coordinator(
        self, fleet: tuple[SiteId, ...] = (), saved_state: PersistentCounter | None = None
    ) -> Coordinator:
        rng = self._rng.spawn("coordinator")
        return Coordinator(
            COUNTER,
            self._scheme,
            rng,
            alpha=self._alpha,
            delta=self._delta,
            floor=self._floor,
            expected_sites=self._expected_sites,
            fleet=fleet,
            saved_state=saved_state,
        )

    def _create(self, site_id: SiteId, trigger: Trigger | None = None, count: int = 0) -> Site:
        site = Site(COUNTER, site_id, self._rng.spawn("site", *site_id[:2]), trigger=trigger, count=count)
        self.sites[site_id] = site
        return site

    @property
    def total(self) -> int:
        return self.departed + sum(site.count for site in self.sites.values())

    def add(self, site_id: SiteId, n: int = 1) -> None:
        self._send(site_id, self.sites[site_id].add(n))

    def join(self, site_id: SiteId, count: int = 0) -> None:
        self.wire += self.coordinator.join(site_id, self._create(site_id, count=count).snapshot())

    def leave(self, site_id: SiteId) -> None:
        site = self.sites.pop(site_id)
        self.departed += site.count
        self.wire += self.coordinator.leave(site_id, site.snapshot())

    def time_out(self, site_id: SiteId) -> None:
        self.wire += self.coordinator.mark_unreachable(site_id)

    def reconnect(self, site_id: SiteId) -> None:
        """A site connects again: it joins, and resends all that may have been lost."""
        site = self.sites[site_id]
        self.wire += self.coordinator.join(site_id, site.snapshot())
        self._send(site_id, site.resend())

    def restart(self, saved_state: PersistentCounter | None = None) -> None:
        """Another coordinator starts from the saved state, or from an older copy of it."""
        self.coordinator = self._start_coordinator(saved_state=saved_state or self.coordinator.saved_state)
        self.wire += self.coordinator.recover()

    def deliver(self, number: int = 0) -> None:
        site_id, message = self.wire.pop(number)
        if isinstance(message, UpMessage):
            self.wire += self.coordinator.receive(site_id, message)
        elif site_id in self.sites:
            self._send(site_id, self.sites[site_id].receive(message))

    def deliver_all(self) -> None:
        while self.wire:
            self.deliver()

    def _send(self, site_id: SiteId, messages: tuple[UpMessage, ...]) -> None:
        self.wire += [(site_id, message) for message in messages]


def down(outbox: Outbox, kind: type[DownMessage]) -> list[SiteName]:
    """The names of the sites that are sent a message of this kind."""
    return [site_id.site for site_id, message in outbox if isinstance(message, kind)]


def requested(outbox: Outbox) -> list[SiteName]:
    """The names of the sites of which a synchronisation requests a snapshot."""
    return down(outbox, StartRound)


def report(count: int, crossings: int, round: int = 0) -> Report:
    return Report(COUNTER, round, count, crossings)


def snapshot(count: int, round: int = 0) -> Snapshot:
    return Snapshot(COUNTER, round, count)
