"""The accounts of a `Budget`: coordinators and sites of its periods, and the messages between them."""

from collections.abc import Callable
from dataclasses import replace
from threading import RLock

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.messages import Ask, BudgetId, Outbox
from countless.core.budget.periods import Periods
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from countless.errors import AboveLimit

EXHAUSTED = Decision(Reason.EXHAUSTED)


class Member:
    """A site under one of its incarnations."""

    def __init__(self, site_id: SiteId) -> None:
        self.site_id = site_id
        self.closed: BudgetSite | None = None  # once it was removed


class Period:
    """One period: its coordinator, and its sites as far as they have been used in it."""

    def __init__(self, coordinator: BudgetCoordinator) -> None:
        self.coordinator = coordinator
        self.sites: dict[SiteId, BudgetSite] = {}
        self.handed_in = 0  # units spent by the sites that were removed

    @property
    def spent(self) -> int:
        """Since the last reset."""
        return self.handed_in + sum(site.spent for site in self.sites.values()) - self.coordinator.forgiven

    def site(self, site_id: SiteId) -> BudgetSite:
        site = self.sites.get(site_id)
        if site is None:  # nothing waits for a round trip here, so it does not ask early
            site = self.sites[site_id] = BudgetSite(self.coordinator.budget, early_percent=0)
        return site


class Accounts:
    """The periods of a budget. Everything is called with the lock."""

    def __init__(self, name: str, rule: BudgetRule, clock: Callable[[], float], expected_holders: int) -> None:
        self.name = name
        self.rule = rule
        self.lock = RLock()
        self.up = self.down = 0  # messages
        self._clock = clock
        self._expected = expected_holders
        self._holders = 1  # of the last period
        self._earliest = 0.0  # periods that end before are dropped: making them again would forget what was spent
        self._periods: Periods[Period] = Periods(rule.calendar, self._new_period)

    def enter(self) -> None:
        """Go to the period that the clock shows, or to the first one that is left if it has gone back further."""
        calendar = self._periods.calendar
        if calendar is not None:
            for dropped in self._periods.enter(max(self._clock(), self._earliest)):
                self._earliest = max(self._earliest, calendar.bounds(dropped.coordinator.budget.period)[1])

    @property
    def present(self) -> Period:
        self.enter()
        return self._periods.present

    def site(self, member: Member) -> tuple[Period, BudgetSite]:
        """The present period, and the site in it."""
        period = self.present
        return period, member.closed or period.site(member.site_id)

    @property
    def ends_at(self) -> float | None:
        """Of the present period."""
        return None if self.rule.per is None else self._periods.ends_at

    def refusal(self, member: Member, n: int) -> Decision:
        if n > self.rule.limit:
            raise AboveLimit(self.name, n, self.rule.limit)
        at = self.available_at(member, n)
        return EXHAUSTED if at is None else Decision(Reason.EXHAUSTED, max(0.0, at - self._clock()))

    def available_at(self, member: Member, n: int) -> float | None:
        """When a request that was refused may succeed, if that is known."""
        return self.ends_at

    def reset(self) -> None:
        period = self.present
        self.deliver(period, period.coordinator.reset())

    def set_limit(self, limit: int) -> None:
        self.rule = replace(self.rule, limit=limit)
        for period in self._periods.states.values():
            self.deliver(period, period.coordinator.set_limit(limit))

    def remove(self, member: Member) -> int:
        """What it spent in the present period."""
        period, site_id = self.present, member.site_id
        member.closed = period.site(site_id)
        handed_in = member.closed.close()
        del period.sites[site_id]
        period.handed_in += handed_in
        self.up += 1
        outbox = period.coordinator.leave(site_id, handed_in)
        period.coordinator.forget(site_id)
        self.deliver(period, outbox)
        return handed_in

    def advance(self, site_id: SiteId) -> tuple[Ask, ...]:
        """Before a request, a settlement or a message: units of this site may come back."""
        return ()

    def record(self, site_id: SiteId) -> None:
        """After a request or a settlement."""

    def settle(self, period: Period, site_id: SiteId, site: BudgetSite, units: int, used: int) -> None:
        """End a hold, in the period in which it was made."""
        self.send(period, site_id, site.settle(units, used))

    def send(self, period: Period, site_id: SiteId, messages: tuple[Ask, ...]) -> None:
        outbox: Outbox = []
        self._send_up(period, site_id, messages, outbox)
        self.deliver(period, outbox)

    def deliver(self, period: Period, outbox: Outbox) -> None:
        for site_id, message in outbox:
            self.down += 1
            for answers in (self.advance(site_id), period.sites[site_id].receive(message)):
                self._send_up(period, site_id, answers, outbox)  # the loop delivers what this appends

    def _send_up(self, period: Period, site_id: SiteId, messages: tuple[Ask, ...], outbox: Outbox) -> None:
        for message in messages:
            self.up += 1
            outbox += period.coordinator.receive(site_id, message)
            self._holders = period.coordinator.holders

    def _new_period(self, number: int) -> Period:
        return Period(
            BudgetCoordinator(
                BudgetId(self.name, number),
                self.rule.limit,
                slack=self.rule.slack,
                expected_holders=max(self._expected, self._holders),
            )
        )
