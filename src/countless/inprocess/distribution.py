"""`Distribution`: quantiles of values that in-process sites observe, with bounds on the rank."""

from collections.abc import Iterable
from fractions import Fraction
from threading import RLock

from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.distribution import Buckets, BucketSite, Quantile, Rank, Ranks
from countless.core.family.messages import LabelReport
from countless.core.family.rule import CertainSteps
from countless.core.messages import SiteId, SiteName
from countless.errors import InvalidParameter
from countless.inprocess.world import LabelWorld, Meter, Roster, Traffic, fleet_of

_SHARE = Fraction(1)  # of epsilon


class Distribution:
    """The quantiles of values over all sites.

    >>> latency = Distribution(sites=10, epsilon=0.01)
    >>> for i in range(100_000):
    ...     latency.site(i % 10).observe(i % 1000 + 1)
    >>> p99 = latency.quantile(0.99)
    >>> 970 < p99.estimate < 1010, p99.lower <= 990
    (True, True)
    >>> rank = latency.rank(500)
    >>> rank.lower <= 50_000 <= rank.upper
    True
    >>> latency.messages.total < 9_000
    True

    The bounds are certain. Values below 1e-9 count as 0.

    Args:
        sites: As for `Tracker`.
        epsilon: How far the rank of a quantile may be off, as a share of all observations.
        accuracy: How far its value may be off, relatively.
        name: Its name.
    """

    def __init__(
        self,
        sites: int | Iterable[SiteName] = 10,
        epsilon: float = 0.01,
        accuracy: float = 0.01,
        *,
        name: str = "distribution",
    ) -> None:
        fleet = fleet_of(sites)
        if not isinstance(name, str):
            raise InvalidParameter("name", name, "a string")
        self.name = name
        self._lock = RLock()
        self._buckets = Buckets(accuracy)
        coordinator = FamilyCoordinator(name, CertainSteps(epsilon, _SHARE, _SHARE), fleet=fleet)
        self._world = LabelWorld(coordinator, fleet, lambda _: BucketSite(name), Meter(self._count_counts))
        self._counts_sent = 0
        self._sites: Roster[ObservingSite] = Roster()
        for site_id in fleet:
            self._new_site(site_id)

    def __repr__(self) -> str:
        return f"<Distribution {self.name!r}: {self._world.coordinator!r}; {self.messages.total:,} messages>"

    @property
    def messages(self) -> Traffic:
        """The messages sent so far. One message has the counts of all buckets that have changed."""
        with self._lock:
            return self._world.traffic

    @property
    def counts_sent(self) -> int:
        """The counts of buckets in all messages."""
        with self._lock:
            return self._counts_sent

    def site(self, name: SiteName) -> "ObservingSite":
        return self._sites.find(name)

    def add_site(self, name: SiteName | None = None) -> "ObservingSite":
        """Add a site, at any time. Without a name it gets the next free number."""
        with self._lock:
            site_id = self._sites.next_id(name)
            self._world.join(site_id)
            return self._new_site(site_id)

    def remove_site(self, name: SiteName) -> int:
        """Remove a site and return how many values it has observed. They stay in the distribution."""
        with self._lock:
            return self._world.leave(self._sites.remove(name))

    def quantile(self, q: float) -> Quantile | None:
        """The value with a share `q` of all observations at or below it; None if there are none."""
        return self._ranks().quantile(q)

    def rank(self, value: float) -> Rank:
        """The number of observations that are at most `value`."""
        return self._ranks().rank(value)

    def _ranks(self) -> Ranks:
        with self._lock:
            coordinator = self._world.coordinator
            return Ranks(coordinator.known, coordinator.held_back.total, self._buckets)

    def _new_site(self, site_id: SiteId) -> "ObservingSite":
        return self._sites.add(site_id, ObservingSite(self._lock, self._world, site_id, self._buckets))

    def _count_counts(self, site_id: SiteId, message: object) -> None:
        self._counts_sent += len(message.counts) if isinstance(message, LabelReport) else 0


class ObservingSite:
    """One site of a `Distribution`."""

    __slots__ = ("_buckets", "_lock", "_site_id", "_world")

    def __init__(self, lock: RLock, world: LabelWorld, site_id: SiteId, buckets: Buckets) -> None:
        self._lock = lock
        self._world = world
        self._buckets = buckets
        self._site_id = site_id

    def __repr__(self) -> str:
        return f"<ObservingSite {self._site_id.site!r}>"

    def observe(self, value: float, n: int = 1) -> None:
        """Count `n` observations of a value."""
        label = self._buckets.label(value)
        with self._lock:
            self._world.add(self._site_id, label, n)
