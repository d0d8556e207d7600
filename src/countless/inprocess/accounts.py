"""The accounts of a `Budget`: a world for each period, or one whose units come back."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from threading import RLock

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.messages import Ask, BudgetId, Outbox, Quota
from countless.core.budget.rolling import Returns, RollingSite
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite, Taken, Verdict
from countless.core.messages import SiteId
from countless.core.periods.site import SitePeriods
from countless.errors import AboveLimit, InvariantBroken
from countless.inprocess.world import Meter, World

EXHAUSTED = Decision(Reason.EXHAUSTED)
Request = Callable[[BudgetSite, int], Taken]


class SiteAccount:
    """A site in one period, with the request that waits there while messages are delivered."""

    __slots__ = ("_allowed", "_waiting", "site")

    def __init__(self, site: BudgetSite) -> None:
        self.site = site
        self._waiting: tuple[Request, int] | None = None
        self._allowed = False

    @property
    def spent(self) -> int:
        return self.site.spent

    def advance(self) -> None:
        """Units may come back."""

    def record(self) -> None:
        """Units may have been taken."""

    def request(self, request: Request, n: int) -> Sequence[Ask]:
        """Decide a request, or remember it until it is answered."""
        taken = request(self.site, n)
        self.record()
        self._allowed = taken.verdict is Verdict.ALLOWED
        self._waiting = (request, n) if taken.verdict is Verdict.WAITING else None
        return taken.messages

    @property
    def allowed(self) -> bool:
        """The answer to the last request, once all messages are delivered."""
        if self._waiting is not None:
            raise InvariantBroken(f"a request for {self._waiting[1]} units was not answered: {self.site}")
        return self._allowed

    def receive(self, quota: Quota) -> Sequence[Ask]:
        self.advance()
        self.site.receive(quota)
        return self.proceed()

    def settle(self, units: int, used: int) -> Sequence[Ask]:
        self.advance()
        self.site.settle(units, used)
        self.record()
        return self.proceed()

    def proceed(self) -> Sequence[Ask]:
        """Repeat the request that waits, and return the units that need not be kept."""
        self.site.repeat()
        if self._waiting is not None:
            self.request(*self._waiting)
        return self.site.proceed()


class RollingSiteAccount(SiteAccount):
    """Its units come back as `clock` tells."""

    __slots__ = ("_clock",)

    site: RollingSite

    def __init__(self, site: RollingSite, clock: Callable[[], float]) -> None:
        super().__init__(site)
        self._clock = clock

    @property
    def spent(self) -> int:
        return self.site.taken

    def advance(self) -> None:
        self.site.advance(self._clock())

    def record(self) -> None:
        self.site.record()


class Holding:
    """A site under one of its incarnations."""

    def __init__(self, site_id: SiteId) -> None:
        self.site_id = site_id
        self.closed: SiteAccount | None = None  # once it was removed


class SpendingPeriod(World[BudgetCoordinator, SiteAccount]):
    """One period: its coordinator, and its sites as far as they have been used in it."""

    def __init__(
        self, coordinator: BudgetCoordinator, meter: Meter, new_account: Callable[[BudgetId], SiteAccount]
    ) -> None:
        super().__init__(coordinator, {}, meter)
        self._new_account = new_account

    @property
    def spent(self) -> int:
        """Since the last reset."""
        sites = sum(account.site.spent for account in self.sites.values())
        return self.coordinator.gone + sites - self.coordinator.forgiven

    def account(self, site_id: SiteId) -> SiteAccount:
        account = self.sites.get(site_id)
        if account is None:
            account = self.sites[site_id] = self._new_account(self.coordinator.budget)
        return account


class Accounts:
    """The periods of a budget. Everything is called with the lock."""

    def __init__(self, name: str, rule: BudgetRule, clock: Callable[[], float], expected_holders: int) -> None:
        self.name = name
        self.rule = rule
        self.lock = RLock()
        self.meter = Meter()
        self._clock = clock
        self._expected = expected_holders
        self._holders = 1  # of the period in which a site has asked last
        self._asked = 0  # messages of sites until then
        self._earliest = 0.0  # periods that end before are dropped: making them again would forget what was spent
        self._periods: SitePeriods[SpendingPeriod] = SitePeriods(rule.calendar, self._new_period)

    def enter(self) -> None:
        """Go to the period that the clock shows, or to the first one that is left if it has gone back further."""
        self._periods.enter(max(self._clock(), self._earliest))
        for dropped in self._periods.drop_earlier():
            self._earliest = max(self._earliest, self._periods.calendar.bounds(dropped.coordinator.budget.period)[1])

    @property
    def present(self) -> SpendingPeriod:
        self.enter()
        return self._periods.present

    def account(self, holding: Holding) -> tuple[SpendingPeriod, SiteAccount]:
        """The present period, and the site in it."""
        period = self.present
        return period, holding.closed or period.account(holding.site_id)

    @property
    def ends_at(self) -> float | None:
        """The end of the current period."""
        return None if self.rule.per is None else self._periods.ends_at

    def refusal(self, holding: Holding, n: int) -> Decision:
        if n > self.rule.limit:
            raise AboveLimit(self.name, n, self.rule.limit)
        at = self.available_at(holding, n)
        return EXHAUSTED if at is None else Decision(Reason.EXHAUSTED, max(0.0, at - self._clock()))

    def available_at(self, holding: Holding, n: int) -> float | None:
        """The time at which a refused request may succeed, if known."""
        return self.ends_at

    def reset(self) -> None:
        period = self.present
        self.deliver(period, period.coordinator.reset())

    def set_limit(self, limit: int) -> None:
        self.rule = replace(self.rule, limit=limit)
        for period in self._periods.states.values():
            self.deliver(period, period.coordinator.set_limit(limit))

    def remove(self, holding: Holding) -> int:
        """Remove the site; return its spending in the current period."""
        period, site_id = self.present, holding.site_id
        account = holding.closed = period.account(site_id)
        spent = account.spent + account.site.held
        self._asked += 1  # what it hands in is no request
        self._delivered(period, period.remove_site(site_id, period.coordinator.leave, account.site.close()))
        period.coordinator.forget(site_id)
        return spent

    def send(self, period: SpendingPeriod, site_id: SiteId, messages: Sequence[Ask]) -> None:
        if messages:
            self._delivered(period, period.send(site_id, messages))

    def deliver(self, period: SpendingPeriod, outbox: Outbox) -> None:
        if outbox:
            self._delivered(period, period.deliver(outbox))

    def _delivered(self, period: SpendingPeriod, outbox: Outbox) -> None:
        if self.meter.up > self._asked:
            self._asked, self._holders = self.meter.up, period.coordinator.holders

    def _new_period(self, number: int) -> SpendingPeriod:
        coordinator = BudgetCoordinator(
            BudgetId(self.name, number),
            self.rule.limit,
            slack=self.rule.slack,
            expected_holders=max(self._expected, self._holders),
            rolling=self.rule.rolling is not None,
        )
        return SpendingPeriod(coordinator, self.meter, self._new_account)

    def _new_account(self, budget: BudgetId) -> SiteAccount:
        return SiteAccount(
            BudgetSite(budget, early_percent=0)
        )  # nothing waits for a round trip here: it need not ask early


class RollingAccounts(Accounts):
    """Units come back: there is one period, which never ends."""

    def __init__(self, name: str, rule: BudgetRule, clock: Callable[[], float], expected_holders: int) -> None:
        self._length = rule.rolling or inf
        self._now = -inf
        self._start()
        super().__init__(name, rule, lambda: self._read(clock), expected_holders)

    def _read(self, clock: Callable[[], float]) -> float:
        self._now = max(clock(), self._now)  # a clock that goes back keeps units longer
        return self._now

    def _start(self) -> None:
        self._returns = Returns(self._length)
        self._next_at: dict[SiteId, float] = {}
        self._ticks: list[tuple[float, int, SiteId]] = []  # a heap; an entry counts if `_next_at` has its time
        self._numbers = count()  # of entries, because site ids cannot be compared

    def enter(self) -> None:
        """Let units come back of which the coordinator must know."""
        now = self._clock()
        period = self._periods.enter(now)
        self.deliver(period, period.coordinator.return_units(self._returns.due(now)))
        while self._ticks and self._ticks[0][0] <= now:
            moment, _, site_id = heappop(self._ticks)
            if self._next_at.get(site_id) == moment:
                del self._next_at[site_id]
                self._advance(period, site_id)

    @property
    def present(self) -> SpendingPeriod:
        self.enter()
        period = self._periods.present
        for site_id in list(period.sites):
            self._advance(period, site_id)
        return period

    def account(self, holding: Holding) -> tuple[SpendingPeriod, SiteAccount]:
        self.enter()
        period = self._periods.present
        if holding.closed is None:
            period.account(holding.site_id)
            self._advance(period, holding.site_id)
        return period, holding.closed or period.sites[holding.site_id]

    def send(self, period: SpendingPeriod, site_id: SiteId, messages: Sequence[Ask]) -> None:
        super().send(period, site_id, messages)
        self._schedule(site_id)

    def available_at(self, holding: Holding, n: int) -> float | None:
        account = self._periods.present.sites.get(holding.site_id)
        return account.site.returns_at(n - account.site.room) if isinstance(account, RollingSiteAccount) else None

    def _advance(self, period: SpendingPeriod, site_id: SiteId) -> None:
        account = period.sites.get(site_id)
        if account is not None:
            account.advance()
            self.send(period, site_id, account.proceed())

    def _delivered(self, period: SpendingPeriod, outbox: Outbox) -> None:
        super()._delivered(period, outbox)
        now = self._clock()
        for age, units in period.coordinator.take_panes():
            self._returns.add(now + self._length - age, units)
        for site_id, _ in outbox:
            self._schedule(site_id)

    def _schedule(self, site_id: SiteId) -> None:
        account = self._periods.enter(self._now).sites.get(site_id)
        if isinstance(account, RollingSiteAccount) and account.site.next_at < self._next_at.get(site_id, inf):
            self._next_at[site_id] = account.site.next_at
            heappush(self._ticks, (account.site.next_at, next(self._numbers), site_id))

    def _new_account(self, budget: BudgetId) -> SiteAccount:
        return RollingSiteAccount(RollingSite(budget, self._length, early_percent=0), self._clock)

    def reset(self) -> None:
        for account in self.present.sites.values():
            account.site.close()  # its holds do not count
        self._periods = SitePeriods(None, self._new_period)
        self._start()
