"""`Budget`: a limit on what in-process sites spend together, safe to use from many threads.

The site and the coordinator are those of production; only the transport is missing. A message is delivered before the
call that caused it returns, so every request is decided within its call.
"""

from collections.abc import Callable, Iterable
from threading import RLock

from countless.core.budget.coordinator import BudgetCoordinator, Usage
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.hold import Hold
from countless.core.budget.messages import Ask, BudgetId, Outbox
from countless.core.budget.site import BudgetSite, Taken, Verdict
from countless.core.messages import SiteId, SiteName
from countless.errors import Exhausted, InvalidParameter, InvariantBroken, UnknownName
from countless.inprocess.network import Traffic
from countless.inprocess.site_names import free_number, require_name, site_names

_ALLOWED = Decision(Reason.ALLOWED)
_EXHAUSTED = Decision(Reason.EXHAUSTED)


class Budget:
    """A limit over in-process sites that is never exceeded, and decided without a message for most requests.

    >>> budget = Budget(limit=1_000_000, sites=100, slack=0.01)
    >>> allowed = 0
    >>> while budget.site(allowed % 100).take():
    ...     allowed += 1
    >>> 990_000 <= allowed <= 1_000_000
    True
    >>> budget.messages.total < 4_000
    True

    `sites` is a number of sites, named 0, 1, 2, ..., or their names. A request is refused only if it is larger than
    what is left, or if at most `slack * limit` units are left. `expected_holders` is how many of the sites will ask, if
    that is known: the first grants are made for so many.
    """

    def __init__(
        self,
        limit: int,
        sites: int | Iterable[SiteName] = 10,
        slack: float = 0.01,
        *,
        name: str = "budget",
        expected_holders: int = 1,
    ) -> None:
        names = site_names(sites)
        if not isinstance(name, str):
            raise InvalidParameter("name", name, "a string")
        self._lock = RLock()
        self._id = BudgetId(name)
        self._coordinator = BudgetCoordinator(self._id, limit, slack=slack, expected_holders=expected_holders)
        self._sites: dict[SiteName, SpendingSite] = {}
        self._incarnations: dict[SiteName, int] = {}
        self._handed_in = 0  # units spent by the sites that were removed
        self._up = self._down = 0
        for site_name in names:
            self._new_site(site_name)

    def __repr__(self) -> str:
        return f"<Budget {self._id.name!r}: {self.spent:,} of {self.limit:,} spent; {self.messages.total:,} messages>"

    @property
    def limit(self) -> int:
        return self._coordinator.limit

    @property
    def spent(self) -> int:
        """The exact spending, which a distributed coordinator does not have: for tests and demonstrations."""
        with self._lock:
            return self._handed_in + sum(site.spent for site in self._sites.values())

    @property
    def held(self) -> int:
        """The units reserved and not settled, exactly."""
        with self._lock:
            return sum(site.held for site in self._sites.values())

    @property
    def usage(self) -> Usage:
        """What the coordinator knows of the spending."""
        with self._lock:
            return self._coordinator.usage

    @property
    def messages(self) -> Traffic:
        """The messages sent so far."""
        with self._lock:
            return Traffic(self._up, self._down)

    @property
    def sites(self) -> tuple[SiteName, ...]:
        """The names of the present sites."""
        with self._lock:
            return tuple(self._sites)

    def site(self, name: SiteName) -> "SpendingSite":
        """The site of this name: call its `take` or `reserve` for every request."""
        try:
            return self._sites[name]
        except (KeyError, TypeError):
            raise UnknownName("site", name, self._sites) from None

    def add_site(self, name: SiteName | None = None) -> "SpendingSite":
        """Add a site, at any time. Without a name it gets the next free number."""
        with self._lock:
            if name is None:
                name = free_number(self._sites)
            require_name(name)
            if name in self._sites:
                raise InvalidParameter("site", name, "a name that is not taken")
            return self._new_site(name)

    def remove_site(self, name: SiteName) -> int:
        """Remove a site and return what it spent. Its holds count as spent whole; the rest of its limit is free."""
        with self._lock:
            site = self.site(name)
            handed_in = site._site.close()
            del self._sites[name]
            self._incarnations[name] = site._site_id.incarnation + 1
            self._handed_in += handed_in
            self._up += 1
            self._deliver(self._coordinator.leave(site._site_id, handed_in))
            return handed_in

    def set_limit(self, limit: int) -> None:
        """Raise or lower the limit. Below what is spent and held already, it stops all further spending."""
        with self._lock:
            self._deliver(self._coordinator.set_limit(limit))

    # The methods below are called under the lock.

    def _new_site(self, name: SiteName) -> "SpendingSite":
        site_id = SiteId(name, self._incarnations.get(name, 0))
        site = BudgetSite(self._id, early_percent=0)  # nothing waits for a round trip here
        self._sites[name] = SpendingSite(site_id, site, self._lock, self._send)
        return self._sites[name]

    def _send(self, site_id: SiteId, messages: tuple[Ask, ...]) -> None:
        outbox: Outbox = []
        self._send_up(site_id, messages, outbox)
        self._deliver(outbox)

    def _send_up(self, site_id: SiteId, messages: tuple[Ask, ...], outbox: Outbox) -> None:
        for message in messages:
            self._up += 1
            outbox += self._coordinator.receive(site_id, message)

    def _deliver(self, outbox: Outbox) -> None:
        for site_id, message in outbox:
            self._down += 1
            answers = self._sites[site_id.site]._site.receive(message)
            self._send_up(site_id, answers, outbox)  # the loop delivers what this appends


class SpendingSite:
    """One site of a `Budget`."""

    __slots__ = ("_lock", "_send", "_site", "_site_id")

    def __init__(
        self, site_id: SiteId, site: BudgetSite, lock: RLock, send: Callable[[SiteId, tuple[Ask, ...]], None]
    ) -> None:
        self._site_id = site_id
        self._site = site
        self._lock = lock
        self._send = send

    def __repr__(self) -> str:
        return f"<SpendingSite {self._site_id.site!r}: {self.spent} spent, {self.held} held, room for {self.room}>"

    @property
    def spent(self) -> int:
        return self._site.spent

    @property
    def held(self) -> int:
        return self._site.held

    @property
    def room(self) -> int:
        """The units that this site can admit without a message."""
        return self._site.room

    def take(self, n: int = 1) -> Decision:
        """Spend `n` units, if they are left."""
        return self._decide(self._site.take, n)

    def reserve(self, n: int) -> Hold:
        """Hold `n` units until it is known how many are used. Raises `Exhausted` if they are not left.

        >>> site = Budget(limit=100, sites=1).site(0)
        >>> with site.reserve(40) as hold:
        ...     hold.settle(25)
        >>> site.spent, site.held
        (25, 0)
        """
        decision = self._decide(self._site.reserve, n)
        if not decision:
            raise Exhausted(self._site.budget.name, n)
        return Hold(n, self._settle)

    def _decide(self, request: Callable[[int], Taken], n: int) -> Decision:
        with self._lock:
            taken = request(n)
            if taken.verdict is Verdict.WAITING:
                self._send(self._site_id, taken.messages)
                taken = request(n)
            if taken.verdict is Verdict.WAITING:
                raise InvariantBroken(f"a request for {n} units was not answered: {self._site}")
            return _ALLOWED if taken.verdict is Verdict.ALLOWED else _EXHAUSTED

    def _settle(self, units: int, used: int) -> None:
        with self._lock:
            self._send(self._site_id, self._site.settle(units, used))
