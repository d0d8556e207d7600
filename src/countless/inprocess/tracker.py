"""The library face: a whole tracker in one process (SPEC section 2), safe to use from many threads.

Sites, coordinator and an instantaneous network between them, with every message counted. This is the production site
and the production coordinator: only the wire is missing.
"""

from collections.abc import Callable, Iterable
from threading import RLock

from countless.client.local_counter import LocalCounter
from countless.core.answer import Answer
from countless.core.coordinator import Coordinator
from countless.core.estimator import Scheme
from countless.core.messages import DownMessage, SiteId, SiteName, UpMessage
from countless.core.parameters import require_alpha, require_probability
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.errors import InvalidParameter, PlanError, UnknownName
from countless.inprocess.network import MemoryNetwork, Messages
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

    `sites` is a number of sites, named 0, 1, 2, ..., or their names. `adversary` says what `auto` must stand against:
    "oblivious" (streams that do not react to the answers), "adaptive" (whoever sees the answers) or "sees-everything"
    (also message counts and times). With a `seed` every run is the same; without one the dice are the system's.
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
    ) -> None:
        fleet = [SiteId(name) for name in _site_names(sites)]
        require_alpha(alpha)
        require_probability("delta", delta)
        require_adversary(adversary)
        if not isinstance(counter, str):
            raise InvalidParameter("counter", counter, "a string")
        self._lock = RLock()
        self._rng: SystemRandom | SeededRandom = SystemRandom() if seed is None else SeededRandom(seed)
        self._meters: dict[SiteName, LocalCounter] = {}
        self._lives: dict[SiteName, int] = {}
        self._gone = 0
        self._listeners: list[Callable[[Answer], None]] = []
        self._prepared = 0  # the round for whose successor plans have been made
        self._announced: float = 0
        self._announcing = False
        self._coordinator = Coordinator(
            counter,
            self._scheme(scheme, adversary, seed),
            self._rng.spawn("coordinator"),
            alpha=float(alpha),
            delta=float(delta),
            fleet=fleet,
        )
        self._network = MemoryNetwork(self._coordinator, self._receive)
        for site_id in fleet:
            self._new_site(site_id, self._coordinator.trigger_of(site_id))
        self._coordinator.prepare()

    def __repr__(self) -> str:
        return (
            f"<Tracker {self._coordinator.counter!r} ({self._coordinator.scheme.name}, alpha {self.answer.alpha}, "
            f"delta {self.answer.delta}): {self.answer}; {self.messages.total:,} messages>"
        )

    @staticmethod
    def _scheme(scheme: str | Scheme, adversary: str, seed: int | None) -> Scheme:
        if isinstance(scheme, Scheme):
            return scheme
        return scheme_named(scheme, adversary)

    def _new_site(self, site_id: SiteId, trigger: Trigger | None = None) -> Site:
        rng = self._rng.spawn("site", *site_id)
        site = Site(self._coordinator.counter, site_id, rng, trigger=trigger)
        self._meters[site_id.site] = LocalCounter(site, self._lock, self._deliver)
        return site

    # What can be read

    @property
    def answer(self) -> Answer:
        """The published total, with its bounds and its state."""
        with self._lock:
            return self._coordinator.answer

    @property
    def total(self) -> int:
        """The exact truth, which a real coordinator does not have: for tests and for looking on."""
        with self._lock:
            return self._gone + sum(meter.count for meter in self._meters.values())

    @property
    def messages(self) -> Messages:
        """What the protocol has cost so far."""
        with self._lock:
            return self._network.messages

    @property
    def plan(self) -> object:
        """The numbers in force, with the reason for each."""
        return self._coordinator.plan

    @property
    def sites(self) -> tuple[SiteName, ...]:
        """The names of the sites that take part."""
        with self._lock:
            return tuple(self._meters)

    def site(self, name: SiteName) -> LocalCounter:
        """The site of this name; its `add` is the only thing a program calls often."""
        try:
            return self._meters[name]
        except (KeyError, TypeError):
            raise UnknownName("site", name, self._meters) from None

    # What can be done

    def add_site(self, name: SiteName | None = None) -> LocalCounter:
        """One more site, at any time. Without a name it gets the next free number."""
        with self._lock:
            if name is None:
                name = len(self._meters)
                while name in self._meters:
                    name += 1
            _require_name(name)
            if name in self._meters:
                raise InvalidParameter("site", name, "a name that is not taken")
            site = self._new_site(SiteId(name, self._lives.get(name, 0)))
            try:
                self._network.join(site.site_id, site.snapshot())
            except PlanError:  # no plan for so many sites: nothing has changed
                del self._meters[name]
                raise
            self._afterwards()
            return self._meters[name]

    def remove_site(self, name: SiteName) -> int:
        """Take a site away; its exact last count, which is returned, stays in the total."""
        with self._lock:
            farewell = self.site(name).close()
            del self._meters[name]
            site_id = SiteId(name, self._lives.get(name, 0))
            self._lives[name] = site_id.incarnation + 1
            self._gone += farewell.count
            self._network.leave(site_id, farewell)
            self._afterwards()
            return farewell.count

    def on_change(self, listener: Callable[[Answer], None]) -> Callable[[Answer], None]:
        """Call `listener` with the answer whenever the published estimate moves. Usable as a decorator.

        A listener may add events: that is what reacting traffic is. It is called in the thread that caused the change.
        """
        if not callable(listener):
            raise InvalidParameter("listener", listener, "a function of the answer")
        with self._lock:
            self._listeners.append(listener)
        return listener

    # Under the lock

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self._network.send(site.site_id, messages)
        if self._listeners or self._coordinator.round != self._prepared:
            self._afterwards()

    def _receive(self, site_id: SiteId, message: DownMessage) -> tuple[UpMessage, ...]:
        return self._meters[site_id.site].receive(message)

    def _afterwards(self) -> None:
        """Everything is delivered: let the scheme plan ahead for the round after this one, and tell the listeners."""
        if self._coordinator.round != self._prepared:
            self._prepared = self._coordinator.round
            self._coordinator.prepare()
        if self._listeners and not self._announcing:
            self._announce()

    def _announce(self) -> None:
        # A listener may add events and so move the answer again: it then hears of that next, not in the middle.
        self._announcing = True
        try:
            while self._coordinator.published != self._announced:
                self._announced = self._coordinator.published
                answer = self._coordinator.answer
                for listener in tuple(self._listeners):
                    listener(answer)
        finally:
            self._announcing = False


def _site_names(sites: int | Iterable[SiteName]) -> list[SiteName]:
    if isinstance(sites, bool | str | bytes) or not isinstance(sites, int | Iterable):
        raise InvalidParameter("sites", sites, "a number of sites or a collection of their names")
    if isinstance(sites, int):
        if sites < 0:
            raise InvalidParameter("sites", sites, "at least 0")
        return list(range(sites))
    names = list(sites)
    for name in names:
        _require_name(name)
    if len(set(names)) != len(names):
        raise InvalidParameter("sites", names, "names that all differ")
    return names


def _require_name(name: object) -> None:
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise InvalidParameter("site", name, "a string or an integer")
