"""The accounts of a `Budget` whose units come back: they have one period, which never ends."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf

from countless.core.budget.messages import Ask, Outbox
from countless.core.budget.periods import Periods
from countless.core.budget.rolling import Returns, RollingWindow
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from countless.inprocess.budget_accounts import Accounts, Member, Period


class RollingAccounts(Accounts):
    def __init__(self, name: str, rule: BudgetRule, clock: Callable[[], float], expected_holders: int) -> None:
        super().__init__(name, rule, clock, expected_holders)
        self._length = rule.rolling or inf
        self._start()

    def _start(self) -> None:
        self._windows: dict[SiteId, RollingWindow] = {}
        self._returns = Returns(self._length)
        self._next_at: dict[SiteId, float] = {}
        self._ticks: list[tuple[float, int, SiteId]] = []  # a heap; an entry counts if `_next_at` has its time
        self._numbers = count()  # of entries, because site ids cannot be compared

    def enter(self) -> None:
        """Let units come back of which the coordinator must know."""
        now, period = self._clock(), self._periods.present
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
    def present(self) -> Period:
        self.enter()
        for site_id in list(self._windows):
            self.send(self._periods.present, site_id, self.advance(site_id))
        return self._periods.present

    def site(self, member: Member) -> tuple[Period, BudgetSite]:
        self.enter()
        period, site_id = self._periods.present, member.site_id
        if member.closed is not None:
            return period, member.closed
        if site_id not in self._windows:
            self._windows[site_id] = RollingWindow(period.site(site_id), self._length)
        self.send(period, site_id, self.advance(site_id))
        return period, period.site(site_id)

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

    def available_at(self, member: Member, n: int) -> float | None:
        if member.closed is not None:
            return None
        return self._windows[member.site_id].returns_at(n - self._periods.present.site(member.site_id).room)

    def settle(self, period: Period, site_id: SiteId, site: BudgetSite, units: int, used: int) -> None:
        self.send(period, site_id, self.advance(site_id))
        super().settle(period, site_id, site, units, used)
        self.record(site_id)

    def deliver(self, period: Period, outbox: Outbox) -> None:
        super().deliver(period, outbox)
        for site_id, _ in outbox:
            if site_id in self._windows:
                self._schedule(site_id, self._windows[site_id])

    def _schedule(self, site_id: SiteId, window: RollingWindow) -> None:
        moment = window.next_at
        if moment < self._next_at.get(site_id, inf):
            self._next_at[site_id] = moment
            heappush(self._ticks, (moment, next(self._numbers), site_id))

    def remove(self, member: Member) -> int:
        handed_in = super().remove(member)
        self._windows.pop(member.site_id, None)
        self._returns.add(self._clock() + self._length, handed_in)
        return handed_in

    def reset(self) -> None:
        self._periods = Periods(None, self._new_period)
        self._start()
