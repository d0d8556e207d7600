"""The reference world: production sites and coordinator, with a network that delivers before the next event.

From the same seed a `Tracker` gives the same transcript, because the random sources are spawned in the same way. A
world has no locks and belongs to one thread.
"""

from collections.abc import Sequence

from countless.core.answer import Answer
from countless.core.coordinator import Coordinator
from countless.core.estimator import ExactSum, Scheme
from countless.core.messages import DownMessage, SiteId, SiteName, UpMessage
from countless.core.parameters import require_alpha, require_probability
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.errors import InvalidParameter, PlanError, UnknownName
from countless.inprocess.network import MemoryNetwork, Tap, Traffic
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

    __slots__ = ("_incarnations", "_network", "_rng", "_sites", "coordinator", "total")

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
        names = site_names(sites)
        self._rng = SeededRandom(seed)
        self._incarnations: dict[SiteName, int] = {}
        self._sites: dict[SiteName, Site] = {}
        self.total = 0  # the true total
        self.coordinator = Coordinator(
            COUNTER,
            scheme if isinstance(scheme, Scheme) else scheme_named(scheme, adversary),
            self._rng.spawn("coordinator"),
            alpha=float(alpha),
            delta=float(delta),
            fleet=[SiteId(name) for name in names],
        )
        self._network = MemoryNetwork(self.coordinator, self._receive, tap, count_bytes=count_bytes)
        for name in names:
            self._create(name, self.coordinator.trigger_of(SiteId(name)))

    def __repr__(self) -> str:
        return f"<World of {len(self._sites):,} sites: {self.answer}; total {self.total:,}>"

    def _create(self, name: SiteName, trigger: Trigger | None = None) -> Site:
        site_id = SiteId(name, self._incarnations.get(name, 0))
        rng = self._rng.spawn("site", name, site_id.incarnation)
        site = self._sites[name] = Site(COUNTER, site_id, rng, trigger=trigger)
        return site

    def _receive(self, site_id: SiteId, message: DownMessage) -> tuple[UpMessage, ...]:
        return self._sites[site_id.site].receive(message)

    @property
    def estimate(self) -> float:
        return self.coordinator.estimate

    @property
    def answer(self) -> Answer:
        return self.coordinator.answer

    @property
    def messages(self) -> Traffic:
        return self._network.traffic

    @property
    def round(self) -> int:
        return self.coordinator.round

    @property
    def randomised(self) -> bool:
        """Whether the estimator in force has secrets: it is no exact or deterministic one, and has noise if it may."""
        estimator = self.coordinator.debug_state().estimator
        return not isinstance(estimator, ExactSum | DeterministicEstimator) and getattr(estimator, "noisy", True)

    @property
    def sites(self) -> tuple[SiteName, ...]:
        return tuple(self._sites)

    def site(self, name: SiteName) -> Site:
        try:
            return self._sites[name]
        except KeyError:
            raise UnknownName("site", name, self._sites) from None

    def add(self, name: SiteName, n: int = 1) -> float:
        """`n` events at a site; returns the estimate after everything was delivered."""
        site = self.site(name)
        messages = site.add(n)
        self.total += n
        self.send(site, messages)
        return self.coordinator.estimate

    def send(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        if messages:
            self._network.send(site.site_id, messages)

    def join(self, name: SiteName | None = None) -> SiteName:
        """One more site, at count 0. Without a name it gets the next free number."""
        if name is None:
            name = len(self._sites)
            while name in self._sites:
                name += 1
        if name in self._sites:
            raise InvalidParameter("site", name, "a name that is not taken")
        site = self._create(name)
        try:
            self._network.join(site.site_id, site.snapshot())
        except PlanError:  # no plan for so many sites: nothing has changed
            del self._sites[name]
            raise
        return name

    def leave(self, name: SiteName) -> None:
        """Remove a site; its count stays in the total. The name may join again, as the next incarnation."""
        site = self.site(name)
        del self._sites[name]
        self._incarnations[name] = site.site_id.incarnation + 1
        self._network.leave(site.site_id, site.snapshot())


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
