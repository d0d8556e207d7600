"""The accounts of a `Budget`: a world for each period, or one whose units come back."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from threading import RLock

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.messages import Ask, BudgetId, DownMessage, Outbox
from countless.core.budget.rolling import Returns, RollingWindow
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from countless.core.periods.site import SitePeriods
from countless.errors import AboveLimit
from countless.inprocess.world import Meter, World

EXHAUSTED = Decision(Reason.EXHAUSTED)


class Holding:
    """A site under one of its incarnations."""

    def __init__(self, site_id: SiteId) -> None:
        self.site_id = site_id
        self.closed: BudgetSite | None = None  # once it was removed


class SpendingPeriod(World[BudgetCoordinator, BudgetSite]):
    """One period: its coordinator, and its sites as far as they have been used in it."""

    def __init__(
        self, coordinator: BudgetCoordinator, meter: Meter, new_site: Callable[[SiteId, BudgetId], BudgetSite]
    ) -> None:
        super().__init__(coordinator, {}, meter)
        self.handed_in = 0  # units spent by the sites that were removed
        self._new_site = new_site

    @property
    def spent(self) -> int:
        """Since the last reset."""
        return self.handed_in + sum(site.spent for site in self.sites.values()) - self.coordinator.forgiven

    def site(self, site_id: SiteId) -> BudgetSite:
        site = self.sites.get(site_id)
        if site is None:
            site = self.sites[site_id] = self._new_site(site_id, self.coordinator.budget)
        return site


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

    def site(self, holding: Holding) -> tuple[SpendingPeriod, BudgetSite]:
        """The present period, and the site in it."""
        period = self.present
        return period, holding.closed or period.site(holding.site_id)

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
        holding.closed = period.site(site_id)
        handed_in = holding.closed.close()
        period.handed_in += handed_in
        self._asked += 1  # what it hands in is no request
        self._delivered(period, period.remove_site(site_id, period.coordinator.leave, handed_in))
        period.coordinator.forget(site_id)
        return handed_in

    def advance(self, site_id: SiteId) -> tuple[Ask, ...]:
        """Before a request, a settlement or a message: units of this site may come back."""
        return ()

    def record(self, site_id: SiteId) -> None:
        """After a request or a settlement."""

    def settle(self, period: SpendingPeriod, site_id: SiteId, site: BudgetSite, units: int, used: int) -> None:
        """End a hold, in the period in which it was made."""
        self.send(period, site_id, site.settle(units, used))

    def send(self, period: SpendingPeriod, site_id: SiteId, messages: tuple[Ask, ...]) -> None:
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
        )
        return SpendingPeriod(coordinator, self.meter, self._new_site)

    def _new_site(self, site_id: SiteId, budget: BudgetId) -> BudgetSite:
        return BudgetSite(budget, early_percent=0)  # nothing waits for a round trip here, so it does not ask early


class RollingSite(BudgetSite):
    """Units come back before it receives a message."""

    __slots__ = ("_advance",)

    def __init__(self, budget: BudgetId, advance: Callable[[], tuple[Ask, ...]]) -> None:
        super().__init__(budget, early_percent=0)
        self._advance = advance

    def receive(self, message: DownMessage) -> tuple[Ask, ...]:
        return (*self._advance(), *super().receive(message))


class RollingAccounts(Accounts):
    """Units come back: there is one period, which never ends."""

    def __init__(self, name: str, rule: BudgetRule, clock: Callable[[], float], expected_holders: int) -> None:
        self._length = rule.rolling or inf
        self._start()
        super().__init__(name, rule, clock, expected_holders)

    def _start(self) -> None:
        self._windows: dict[SiteId, RollingWindow] = {}
        self._returns = Returns(self._length)
        self._next_at: dict[SiteId, float] = {}
        self._ticks: list[tuple[float, int, SiteId]] = []  # a heap; an entry counts if `_next_at` has its time
        self._numbers = count()  # of entries, because site ids cannot be compared

    def enter(self) -> None:
        """Let units come back of which the coordinator must know."""
        now = self._clock()
        period = self._periods.enter(now)
        units = self._returns.due(now)
        if units:
            period.handed_in -= units
            self.deliver(period, period.coordinator.return_units(units))
        while self._ticks and self._ticks[0][0] <= now:
            moment, _, site_id = heappop(self._ticks)
            if self._next_at.get(site_id) == moment:
                del self._next_at[site_id]
                self.send(period, site_id, self.advance(site_id))

    @property
    def present(self) -> SpendingPeriod:
        self.enter()
        for site_id in list(self._windows):
            self.send(self._periods.present, site_id, self.advance(site_id))
        return self._periods.present

    def site(self, holding: Holding) -> tuple[SpendingPeriod, BudgetSite]:
        self.enter()
        period, site_id = self._periods.present, holding.site_id
        if holding.closed is not None:
            return period, holding.closed
        site = period.site(site_id)
        self.send(period, site_id, self.advance(site_id))
        return period, site

    def advance(self, site_id: SiteId) -> tuple[Ask, ...]:
        window = self._windows.get(site_id)
        if window is None:
            return ()
        messages = window.advance(self._clock())
        self._schedule(site_id, window)
        return messages

    def record(self, site_id: SiteId) -> None:
        window = self._windows.get(site_id)
        if window is not None:
            window.record()
            self._schedule(site_id, window)

    def available_at(self, holding: Holding, n: int) -> float | None:
        if holding.closed is not None:
            return None
        return self._windows[holding.site_id].returns_at(n - self._periods.present.site(holding.site_id).room)

    def settle(self, period: SpendingPeriod, site_id: SiteId, site: BudgetSite, units: int, used: int) -> None:
        self.send(period, site_id, self.advance(site_id))
        super().settle(period, site_id, site, units, used)
        self.record(site_id)

    def _delivered(self, period: SpendingPeriod, outbox: Outbox) -> None:
        super()._delivered(period, outbox)
        for site_id, _ in outbox:
            if site_id in self._windows:
                self._schedule(site_id, self._windows[site_id])

    def _new_site(self, site_id: SiteId, budget: BudgetId) -> BudgetSite:
        site = RollingSite(budget, partial(self.advance, site_id))
        self._windows[site_id] = RollingWindow(site, self._length)
        return site

    def _schedule(self, site_id: SiteId, window: RollingWindow) -> None:
        moment = window.next_at
        if moment < self._next_at.get(site_id, inf):
            self._next_at[site_id] = moment
            heappush(self._ticks, (moment, next(self._numbers), site_id))

    def remove(self, holding: Holding) -> int:
        handed_in = super().remove(holding)
        self._windows.pop(holding.site_id, None)
        self._returns.add(self._clock() + self._length, handed_in)
        return handed_in

    def reset(self) -> None:
        self._periods = SitePeriods(None, self._new_period)
        self._start()
