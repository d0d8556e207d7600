"""`Budget`: a limit on what in-process sites spend together, safe to use from many threads.

The site and the coordinator are those of production; only the transport is missing. A message is delivered before the
call that caused it returns, so every request is decided within its call. Each period has a coordinator of its own.
"""

from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic, time

from countless.core.budget.amounts import require_amount
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.hold import Hold
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.budget.state import Usage
from countless.core.calendar import Per
from countless.core.messages import SiteId, SiteName
from countless.errors import InvalidParameter, LimitExceeded
from countless.inprocess.accounts import Accounts, Holding, Request, RollingAccounts, SiteAccount, SpendingPeriod
from countless.inprocess.world import Roster, Traffic, fleet_of

_ALLOWED = Decision(Reason.ALLOWED)


class Budget:
    """A limit over in-process sites that is never exceeded, and decided without a message for most requests.

    >>> budget = Budget(limit=100_000, sites=100, slack=0.01)
    >>> allowed = 0
    >>> while budget.site(allowed % 100).take():
    ...     allowed += 1
    >>> 99_000 <= allowed <= 100_000
    True
    >>> budget.messages.total < 4_000
    True

    A request is refused only if it is larger than what is left, or if at most `slack * limit` units are left. With
    `rolling`, a unit may come back up to a tenth of the interval late.

    Args:
        limit: The limit.
        sites: As for `Tracker`.
        slack: The share of the limit that may be left when a request is refused.
        per: The limit is for each minute, hour, day or month.
        tz, anchor: As for `Tracker`.
        rolling: The limit is for every interval of this length, in seconds or as `"1m"`.
        clock: Returns seconds since 1970; with `rolling`, of a monotonic clock.
        name: Its name.
        expected_holders: How many sites will ask, if you know: the first grants are sized for them.
    """

    def __init__(
        self,
        limit: int,
        sites: int | Iterable[SiteName] = 10,
        slack: float = 0.01,
        *,
        per: Per | None = None,
        tz: str = "UTC",
        anchor: int | None = None,
        rolling: float | str | None = None,
        clock: Callable[[], float] | None = None,
        name: str = "budget",
        expected_holders: int = 1,
    ) -> None:
        fleet = fleet_of(sites)
        if not isinstance(name, str):
            raise InvalidParameter("name", name, "a string")
        require_amount("expected_holders", expected_holders)
        rule = BudgetRule(limit, per, tz, anchor, slack, rolling=rolling)  # type: ignore[arg-type]  # makes it seconds
        self._accounts = (
            Accounts(name, rule, clock or time, expected_holders)
            if rule.rolling is None
            else RollingAccounts(name, rule, clock or monotonic, expected_holders)
        )
        self._lock = self._accounts.lock
        self._sites: Roster[SpendingSite] = Roster()
        for site_id in fleet:
            self._new_site(site_id)

    def __repr__(self) -> str:
        return f"<Budget {self.name!r}: {self.spent:,} of {self.limit:,} spent; {self.messages.total:,} messages>"

    @property
    def name(self) -> str:
        return self._accounts.name

    @property
    def limit(self) -> int:
        return self._accounts.rule.limit

    @property
    def spent(self) -> int:
        """The exact spending since the last reset, for tests: a distributed coordinator does not have it."""
        with self._lock:
            return self._accounts.present.spent

    @property
    def held(self) -> int:
        """Units reserved in this period and not settled, exactly."""
        with self._lock:
            return sum(account.site.held for account in self._accounts.present.sites.values())

    @property
    def usage(self) -> Usage:
        """The spending in this period, as the coordinator knows it: a `Usage`."""
        with self._lock:
            return self._accounts.present.coordinator.usage

    @property
    def resets_at(self) -> float | None:
        """End of this period, in seconds since 1970. None without periods."""
        with self._lock:
            self._accounts.enter()
            return self._accounts.ends_at

    @property
    def messages(self) -> Traffic:
        """The messages sent so far, in all periods."""
        with self._lock:
            return self._accounts.meter.traffic

    @property
    def sites(self) -> tuple[SiteName, ...]:
        """The names of the sites."""
        with self._lock:
            return tuple(self._sites)

    def site(self, name: SiteName) -> "SpendingSite":
        """Return the site of this name: call its `take` or `reserve` for every request."""
        return self._sites.find(name)

    def add_site(self, name: SiteName | None = None) -> "SpendingSite":
        """Add a site, at any time. Without a name it gets the next free number."""
        with self._lock:
            return self._new_site(self._sites.next_id(name))

    def remove_site(self, name: SiteName) -> int:
        """Remove a site and return what it spent in this period. Its holds count as spent whole; the rest is free."""
        with self._lock:
            site = self._sites.find(name)
            self._sites.remove(name)
            return self._accounts.remove(site._holding)

    def set_limit(self, limit: int) -> None:
        """Raise or lower the limit. Below what is spent and held already, it stops all further spending."""
        with self._lock:
            self._accounts.set_limit(limit)

    def reset(self) -> None:
        """Forgive what was spent in this period or rolling interval so far."""
        with self._lock:
            self._accounts.reset()

    def _new_site(self, site_id: SiteId) -> "SpendingSite":
        return self._sites.add(site_id, SpendingSite(Holding(site_id), self._accounts))


class SpendingSite:
    """One site of a `Budget`."""

    __slots__ = ("_accounts", "_holding", "_lock")

    def __init__(self, holding: Holding, accounts: Accounts) -> None:
        self._holding = holding
        self._accounts = accounts
        self._lock = accounts.lock

    def __repr__(self) -> str:
        name = self._holding.site_id.site
        return f"<SpendingSite {name!r}: {self.spent} spent, {self.held} held, room for {self.room}>"

    @property
    def spent(self) -> int:
        """Units spent in this period."""
        return self._account.spent

    @property
    def held(self) -> int:
        return self._account.site.held

    @property
    def room(self) -> int:
        """Units this site can admit without a message."""
        return self._account.site.room

    @property
    def _account(self) -> SiteAccount:
        with self._lock:
            return self._accounts.account(self._holding)[1]

    def take(self, n: int = 1) -> Decision:
        """Spend `n` units, if they are left."""
        with self._lock:
            return self._decide(BudgetSite.take, n, *self._accounts.account(self._holding))

    def reserve(self, n: int) -> Hold:
        """Hold `n` units until you know how many are used. Raises `LimitExceeded` if they are not left.

        A hold is settled in the period in which it was made.

        >>> site = Budget(limit=100, sites=1).site(0)
        >>> with site.reserve(40) as hold:
        ...     hold.settle(25)
        >>> site.spent, site.held
        (25, 0)
        """
        with self._lock:
            period, account = self._accounts.account(self._holding)
            decision = self._decide(BudgetSite.reserve, n, period, account)
        if not decision:
            raise LimitExceeded(self._accounts.name, n, decision.retry_after)
        return Hold(n, partial(self._settle, period, account))

    def _decide(self, request: Request, n: int, period: SpendingPeriod, account: SiteAccount) -> Decision:
        self._accounts.send(period, self._holding.site_id, account.request(request, n))
        return _ALLOWED if account.allowed else self._accounts.refusal(self._holding, n)

    def _settle(self, period: SpendingPeriod, account: SiteAccount, units: int, used: int) -> None:
        with self._lock:
            self._accounts.send(period, self._holding.site_id, account.settle(units, used))
