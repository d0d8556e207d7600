"""One total in one process: a coordinator, its sites, and the network between them.

A `Tracker` without windows has one; with windows it has one for each open window.
"""

from collections.abc import Callable, Iterable
from threading import RLock

from countless.client.local_counter import LocalCounter
from countless.core.answer import Answer
from countless.core.coordinator import Coordinator
from countless.core.estimator import Scheme
from countless.core.messages import DownMessage, SiteId, SiteName, UpMessage
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.errors import PlanError
from countless.inprocess.network import MemoryNetwork, Traffic
from countless.randomness import SeededRandom, SystemRandom


class TrackedTotal:
    """Everything is called with the lock held, except `add` of its sites: that calls `changed` after a delivery."""

    def __init__(
        self,
        counter: str,
        scheme: Scheme,
        rng: SystemRandom | SeededRandom,
        lock: RLock,
        changed: Callable[[], None],
        *,
        alpha: float,
        delta: float,
        floor: int = 0,
        expected_sites: int = 0,
        fleet: Iterable[SiteId] = (),
        count_bytes: bool = False,
    ) -> None:
        fleet = list(fleet)
        self.sites: dict[SiteName, LocalCounter] = {}
        self.coordinator = Coordinator(
            counter,
            scheme,
            rng.spawn("coordinator"),
            alpha=alpha,
            delta=delta,
            floor=floor,
            expected_sites=expected_sites,
            fleet=fleet,
        )
        self._rng = rng
        self._lock = lock
        self._changed = changed
        self._departed = 0  # events counted by sites that have left
        self._network = MemoryNetwork(self.coordinator, self._receive, count_bytes=count_bytes)
        for site_id in fleet:
            self._new_site(site_id, self.coordinator.trigger_of(site_id))

    @property
    def answer(self) -> Answer:
        return self.coordinator.answer

    @property
    def estimate(self) -> float:
        return self.coordinator.estimate

    @property
    def total(self) -> int:
        return self._departed + sum(site.count for site in self.sites.values())

    @property
    def traffic(self) -> Traffic:
        return self._network.traffic

    def add_site(self, site_id: SiteId, count: int = 0) -> LocalCounter:
        """It joins with what it has counted. If there is no plan for so many sites, nothing changes."""
        site = self._new_site(site_id, count=count)
        try:
            self._network.join(site_id, site.snapshot())
        except PlanError:
            del self.sites[site_id.site]
            raise
        return self.sites[site_id.site]

    def remove_site(self, site_id: SiteId) -> int:
        """The exact last count of the site, which stays in the total."""
        final = self.sites.pop(site_id.site).close()
        self._departed += final.count
        self._network.leave(site_id, final)
        return final.count

    def _new_site(self, site_id: SiteId, trigger: Trigger | None = None, count: int = 0) -> Site:
        site = Site(
            self.coordinator.counter, site_id, self._rng.spawn("site", *site_id[:2]), trigger=trigger, count=count
        )
        self.sites[site_id.site] = LocalCounter(site, self._lock, self._deliver)
        return site

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self._network.send(site.site_id, messages)
        self._changed()

    def _receive(self, site_id: SiteId, message: DownMessage) -> tuple[UpMessage, ...]:
        return self.sites[site_id.site].receive(message)
