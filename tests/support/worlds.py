"""A small world: the production Site and Coordinator, and between them a wire that delivers at once and remembers."""

from collections import deque

from countless.core.coordinator import Coordinator, PersistentState
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
from countless.randomness import SeededRandom

COUNTER = "hits"

Line = tuple[str, SiteId, Message]


class World:
    """Sites 0 .. sites-1 and a coordinator. Every message is delivered at once, in order, and written down."""

    def __init__(self, scheme: Scheme, sites: int, *, alpha: float = 0.1, delta: float = 1e-9, seed: int = 1) -> None:
        self.rng = SeededRandom(seed)
        self.transcript: list[Line] = []
        self.sites: dict[SiteId, Site] = {}
        self.scheme, self.alpha, self.delta = scheme, alpha, delta
        fleet = [SiteId(name) for name in range(sites)]
        self.coordinator = self.new_coordinator(fleet=fleet)
        for site_id in fleet:
            self._enter(site_id)
        self.gone = 0

    def new_coordinator(
        self, fleet: list[SiteId] | None = None, saved_state: PersistentState | None = None
    ) -> Coordinator:
        return Coordinator(
            COUNTER,
            self.scheme,
            self.rng.spawn("coordinator"),
            alpha=self.alpha,
            delta=self.delta,
            fleet=fleet or (),
            saved_state=saved_state,
        )

    def _enter(self, site_id: SiteId) -> None:
        trigger = self.coordinator.trigger_of(site_id)
        self.sites[site_id] = Site(COUNTER, site_id, self.rng.spawn("site", *site_id), trigger=trigger)

    @property
    def total(self) -> int:
        return self.gone + sum(site.count for site in self.sites.values())

    def add(self, name: SiteName, n: int = 1, *, life: int = 0) -> None:
        site_id = SiteId(name, life)
        self.up(site_id, self.sites[site_id].add(n))

    def join(self, name: SiteName, count: int = 0, *, life: int = 0) -> Site:
        site_id = SiteId(name, life)
        site = Site(COUNTER, site_id, self.rng.spawn("site", *site_id), count=count)
        self.sites[site_id] = site
        hello = site.snapshot()
        self.transcript.append(("join", site_id, hello))
        self.settle(self.coordinator.join(site_id, hello))
        return site

    def leave(self, name: SiteName, *, life: int = 0) -> None:
        site_id = SiteId(name, life)
        farewell = self.sites.pop(site_id).snapshot()
        self.gone += farewell.count
        self.transcript.append(("leave", site_id, farewell))
        self.settle(self.coordinator.leave(site_id, farewell))

    def restart(self) -> None:
        """The coordinator dies and another one goes on from what it saved."""
        self.coordinator = self.new_coordinator(saved_state=self.coordinator.saved_state)
        self.settle(self.coordinator.recover())

    def up(self, site_id: SiteId, messages: tuple[UpMessage, ...]) -> None:
        for message in messages:
            self.transcript.append(("up", site_id, message))
            self.settle(self.coordinator.receive(site_id, message))

    def settle(self, outbox: Outbox) -> None:
        queue = deque(outbox)
        while queue:
            site_id, message = queue.popleft()
            self.transcript.append(("down", site_id, message))
            for reply in self.sites[site_id].receive(message):
                self.transcript.append(("up", site_id, reply))
                queue += self.coordinator.receive(site_id, reply)


def down(outbox: Outbox, kind: type[DownMessage]) -> list[SiteName]:
    """The names of the sites that are sent a message of this kind."""
    return [site_id.site for site_id, message in outbox if isinstance(message, kind)]


def asked(outbox: Outbox) -> list[SiteName]:
    """The sites that a synchronisation asks."""
    return down(outbox, StartRound)


def report(count: int, crossings: int, round: int = 0) -> Report:
    return Report(COUNTER, round, count, crossings)


def snapshot(count: int, round: int = 0) -> Snapshot:
    return Snapshot(COUNTER, round, count)
