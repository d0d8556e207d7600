"""The reference world: production sites and coordinator, with a network that delivers before the next event.

From the same seed a `Tracker` gives the same transcript, because the random sources are spawned in the same way. A
world has no locks and belongs to one thread.
"""

from collections.abc import Sequence

from countless.core.answer import Answer
from countless.core.coordinator import Coordinator
from countless.core.estimator import ExactSum, Scheme
from countless.core.messages import SiteId, SiteName, UpMessage
from countless.core.parameters import require_alpha, require_probability
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.errors import InvalidParameter
from countless.inprocess import world as inprocess
from countless.inprocess.world import Meter, Roster, Tap, Traffic
from countless.randomness import SeededRandom
from countless.schemes.deterministic import DeterministicEstimator
from countless.schemes.registry import require_adversary, scheme_named

COUNTER = "total"  # as in a Tracker: the name is part of every message and so of every byte that is counted
NO_SECRETS = ("exact", "deterministic", "auto")  # they promise no random numbers of their own
MARK = "* played without its secrets to the end: exact start, deterministic rounds or rounds without noise."


class World:
    """One counter.

    >>> world = World("deterministic", 2, alpha=0.1, delta=0.05, seed=1)
    >>> for _ in range(999): _ = world.add(0)
    >>> world.add(0), world.total, world.messages.up
    (1081, 1000, 29)

    `tap` sees every message in order, with its site.
    """

    __slots__ = ("_rng", "_sites", "_world", "coordinator", "total")

    def __init__(
        self,
        scheme: str | Scheme,
        sites: int | Sequence[SiteName],
        *,
        alpha: float,
        delta: float,
        seed: int,
        adversary: str = "adaptive",
        tap: Tap | None = None,
        count_bytes: bool = False,
    ) -> None:
        require_alpha(alpha)
        require_probability("delta", delta)
        require_adversary(adversary)
        fleet = [SiteId(name) for name in site_names(sites)]
        self._rng = SeededRandom(seed)
        self._sites: Roster[Site] = Roster()
        self.total = 0  # the true total
        self.coordinator = Coordinator(
            COUNTER,
            scheme if isinstance(scheme, Scheme) else scheme_named(scheme, adversary),
            self._rng.spawn("coordinator"),
            alpha=float(alpha),
            delta=float(delta),
            fleet=fleet,
        )
        self._world: inprocess.World[Coordinator, Site] = inprocess.World(
            self.coordinator, {}, Meter(tap, count_bytes=count_bytes)
        )
        for site_id in fleet:
            site = self._new_site(site_id, self.coordinator.trigger_of(site_id))
            self._sites[site_id.site] = self._world.sites[site_id] = site

    def __repr__(self) -> str:
        return f"<World of {len(self._sites):,} sites: {self.answer}; total {self.total:,}>"

    def _new_site(self, site_id: SiteId, trigger: Trigger | None = None) -> Site:
        return Site(COUNTER, site_id, self._rng.spawn("site", *site_id[:2]), trigger=trigger)

    @property
    def estimate(self) -> float:
        return self.coordinator.estimate

    @property
    def answer(self) -> Answer:
        return self.coordinator.answer

    @property
    def messages(self) -> Traffic:
        return self._world.traffic

    @property
    def round(self) -> int:
        return self.coordinator.round

    @property
    def randomised(self) -> bool:
        """True if the estimator in force has secrets: it is no exact or deterministic one, and has noise if it may."""
        estimator = self.coordinator.debug_state().estimator
        return not isinstance(estimator, ExactSum | DeterministicEstimator) and getattr(estimator, "noisy", True)

    @property
    def sites(self) -> tuple[SiteName, ...]:
        return tuple(self._sites)

    def site(self, name: SiteName) -> Site:
        return self._sites.find(name)

    def add(self, name: SiteName, n: int = 1) -> float:
        """`n` events at a site; returns the estimate after everything was delivered."""
        site = self.site(name)
        messages = site.add(n)
        self.total += n
        self.send(site, messages)
        return self.coordinator.estimate

    def send(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        if messages:
            self._world.send(site.site_id, messages)

    def join(self, name: SiteName | None = None) -> SiteName:
        """One more site, at count 0. Without a name it gets the next free number."""
        site = self._new_site(self._sites.next_id(name))
        self._world.add_site(site.site_id, site, self.coordinator.join, site.snapshot())
        self._sites.add(site.site_id, site)
        return site.site_id.site

    def leave(self, name: SiteName) -> None:
        """Remove a site; its count stays in the total. The name may join again, as the next incarnation."""
        site = self.site(name)
        self._sites.remove(name)
        self._world.remove_site(site.site_id, self.coordinator.leave, site.snapshot())


def site_names(sites: int | Sequence[SiteName]) -> list[SiteName]:
    """The names of a fleet: those given, or 0, 1, 2, ..."""
    if isinstance(sites, bool | str) or not isinstance(sites, int | Sequence):
        raise InvalidParameter("sites", sites, "a number of sites or a sequence of their names")
    if isinstance(sites, int):
        if sites < 0:
            raise InvalidParameter("sites", sites, "at least 0")
        return list(range(sites))
    if len(set(sites)) != len(sites):
        raise InvalidParameter("sites", sites, "names that all differ")
    return list(sites)
