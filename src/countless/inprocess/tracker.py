"""`Tracker`: sites, coordinator and the network between them in one process, safe to use from many threads.

The site and the coordinator are those of production; only the transport is missing.
"""

from collections.abc import Callable, Iterable
from threading import RLock

from countless.client.local_counter import LocalCounter
from countless.core.answer import Answer
from countless.core.coordinator import Coordinator, DebugState
from countless.core.estimator import Scheme
from countless.core.messages import DownMessage, SiteId, SiteName, UpMessage
from countless.core.parameters import require_alpha, require_probability
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.errors import InvalidParameter, PlanError, UnknownName
from countless.inprocess.network import MemoryNetwork, Traffic
from countless.inprocess.site_names import free_number, require_name, site_names
from countless.randomness import SeededRandom, SystemRandom
from countless.schemes.registry import require_adversary, scheme_named


class Tracker:
    """A global count over in-process sites, within 1 ± alpha at every moment with probability 1 - delta.

    >>> tracker = Tracker(sites=100, alpha=0.05, seed=7)
    >>> for i in range(200_000):
    ...     tracker.site(i % 100).add()
    >>> tracker.answer.lower <= tracker.total <= tracker.answer.upper
    True
    >>> tracker.messages.total < 20_000
    True

    `sites` is a number of sites, named 0, 1, 2, ..., or their names. `adversary` is what `auto` must withstand:
    "oblivious" (streams that do not react to the answers), "adaptive" (streams that react to the answers) or
    "sees-everything" (also to message counts and times). With a `seed` every run is the same; without one the
    randomness is the operating system's. With `count_bytes` the tracker encodes every message to add up
    `messages.bytes`, which is None otherwise.
    """

    def __init__(
        self,
        sites: int | Iterable[SiteName] = 1000,
        alpha: float = 0.01,
        delta: float = 0.05,
        scheme: str | Scheme = "auto",
        adversary: str = "adaptive",
        seed: int | None = None,
        *,
        counter: str = "total",
        count_bytes: bool = False,
    ) -> None:
        fleet = [SiteId(name) for name in site_names(sites)]
        require_alpha(alpha)
        require_probability("delta", delta)
        require_adversary(adversary)
        if not isinstance(counter, str):
            raise InvalidParameter("counter", counter, "a string")
        self._lock = RLock()
        self._rng: SystemRandom | SeededRandom = SystemRandom() if seed is None else SeededRandom(seed)
        self._counters: dict[SiteName, LocalCounter] = {}
        self._incarnations: dict[SiteName, int] = {}
        self._departed = 0  # events counted by the sites that were removed
        self._listeners: list[Callable[[Answer], None]] = []
        self._prepared_round = 0  # the last round in which the scheme was asked to plan ahead
        self._announced: float = 0  # the last estimate given to the listeners
        self._announcing = False
        self._coordinator = Coordinator(
            counter,
            scheme if isinstance(scheme, Scheme) else scheme_named(scheme, adversary),
            self._rng.spawn("coordinator"),
            alpha=float(alpha),
            delta=float(delta),
            fleet=fleet,
        )
        self._network = MemoryNetwork(self._coordinator, self._receive, count_bytes=count_bytes)
        for site_id in fleet:
            self._new_site(site_id, self._coordinator.trigger_of(site_id))
        self._coordinator.prepare()

    def __repr__(self) -> str:
        return (
            f"<Tracker {self._coordinator.counter!r} ({self._coordinator.scheme.name}, alpha {self.answer.alpha}, "
            f"delta {self.answer.delta}): {self.answer}; {self.messages.total:,} messages>"
        )

    def _new_site(self, site_id: SiteId, trigger: Trigger | None = None) -> Site:
        rng = self._rng.spawn("site", *site_id)
        site = Site(self._coordinator.counter, site_id, rng, trigger=trigger)
        self._counters[site_id.site] = LocalCounter(site, self._lock, self._deliver)
        return site

    @property
    def answer(self) -> Answer:
        """The published total, with its bounds and its state."""
        with self._lock:
            return self._coordinator.answer

    @property
    def total(self) -> int:
        """The exact total, which a distributed coordinator does not have: for tests and demonstrations."""
        with self._lock:
            return self._departed + sum(counter.count for counter in self._counters.values())

    @property
    def messages(self) -> Traffic:
        """The messages sent so far."""
        with self._lock:
            return self._network.traffic

    @property
    def plan(self) -> object:
        """The numbers of the present round, with the reason for each."""
        return self._coordinator.plan

    @property
    def sites(self) -> tuple[SiteName, ...]:
        """The names of the present sites."""
        with self._lock:
            return tuple(self._counters)

    def site(self, name: SiteName) -> LocalCounter:
        """The site of this name: call its `add` for every event."""
        try:
            return self._counters[name]
        except (KeyError, TypeError):
            raise UnknownName("site", name, self._counters) from None

    def debug_state(self) -> DebugState:
        """The state of the coordinator, for tests."""
        with self._lock:
            return self._coordinator.debug_state()

    def add_site(self, name: SiteName | None = None) -> LocalCounter:
        """Add a site, at any time. Without a name it gets the next free number."""
        with self._lock:
            if name is None:
                name = free_number(self._counters)
            require_name(name)
            if name in self._counters:
                raise InvalidParameter("site", name, "a name that is not taken")
            site = self._new_site(SiteId(name, self._incarnations.get(name, 0)))
            try:
                self._network.join(site.site_id, site.snapshot())
            except PlanError:  # there is no plan for so many sites: the tracker stays as it was
                del self._counters[name]
                raise
            self._after_delivery()
            return self._counters[name]

    def remove_site(self, name: SiteName) -> int:
        """Remove a site and return its exact last count, which stays in the total."""
        with self._lock:
            final = self.site(name).close()
            del self._counters[name]
            site_id = SiteId(name, self._incarnations.get(name, 0))
            self._incarnations[name] = site_id.incarnation + 1
            self._departed += final.count
            self._network.leave(site_id, final)
            self._after_delivery()
            return final.count

    def on_change(self, listener: Callable[[Answer], None]) -> Callable[[Answer], None]:
        """Call `listener` with the answer whenever the published estimate moves. Usable as a decorator.

        A listener may add events. It is called in the thread that caused the change.
        """
        if not callable(listener):
            raise InvalidParameter("listener", listener, "a function of the answer")
        with self._lock:
            self._listeners.append(listener)
        return listener

    # The methods below are called under the lock.

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self._network.send(site.site_id, messages)
        self._after_delivery()

    def _receive(self, site_id: SiteId, message: DownMessage) -> tuple[UpMessage, ...]:
        return self._counters[site_id.site].receive(message)

    def _after_delivery(self) -> None:
        """Let the scheme plan ahead for the next round, and call the listeners."""
        if self._coordinator.round != self._prepared_round:
            self._prepared_round = self._coordinator.round
            self._coordinator.prepare()
        if self._listeners and not self._announcing:
            self._announce()

    def _announce(self) -> None:
        # A listener that adds events may move the answer again: the loop, not a nested call, announces that.
        self._announcing = True
        try:
            while self._coordinator.published != self._announced:
                self._announced = self._coordinator.published
                answer = self._coordinator.answer
                for listener in tuple(self._listeners):
                    listener(answer)
        finally:
            self._announcing = False
