"""The part of this process in each period of a budget, and what is closed and not acknowledged yet.

The clock of the process decides to which period a request belongs. The coordinator's messages name their period, and so
does every hold: each goes to the state of its own period, whatever the clock shows.

A period that is over is closed and handed in. If the clock goes back to it before that is acknowledged, requests are
refused: what was handed in may be sent again, and must not be taken for the end of a second membership.

A rolling budget has one period, 0, for ever. When it was not used for a window it is handed in, too. It is *cut off*
when the coordinator has not answered for the length of the rule's lease: from then on it admits nothing, because the
coordinator may count this process as lost and let others have its units (design/proofs/budgets.md).
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from math import inf
from zlib import crc32

from countless.client.budgets.local_budget import LocalBudget
from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.budget.rolling import RollingSite
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from countless.core.periods.site import BUDGET_LEADS_S, SitePeriods
from countless.wire.budgets import BudgetLeave

UpItem = Ask | BudgetLeave
NewLocal = Callable[[BudgetSite, SiteId], LocalBudget]


class LocalPeriods:
    """Everything is called with the owner's lock. A method that returns items returns what must be sent."""

    def __init__(self, name: str, site_id: SiteId, new_local: NewLocal, contact: Callable[[], float]) -> None:
        self.rule: BudgetRule | None = None  # until the coordinator has sent it
        self.closed = False
        self.cut_off = False
        self._contact = contact  # when the last frame was sent that the coordinator has answered
        self._name = name
        self._site_id = site_id
        self._new_local = new_local
        self._hand_ins: dict[tuple[BudgetId, int], LocalBudget] = {}
        self._seq = 0  # of the last Ask before the calendar was known, or has changed: an answer may be under way
        self._start(0.0)

    def _start(self, now: float) -> None:
        """A site that does not know the rule is in period 0."""
        calendar = None if self.rule is None else self.rule.calendar
        spread = crc32(f"{self._site_id} {self._name}".encode()) / (1 << 32)
        self._periods: SitePeriods[LocalBudget] = SitePeriods(calendar, self._new, spread, BUDGET_LEADS_S)
        self._periods.enter(now)

    def _new(self, period: int) -> LocalBudget:
        budget = BudgetId(self._name, period)
        closed = self._hand_ins.get((budget, self._site_id.incarnation))
        return self._make(budget) if closed is None else closed

    def _make(self, budget: BudgetId, seq: int = 0, since: int = 0) -> LocalBudget:
        length = None if self.rule is None else self.rule.rolling
        new_site = BudgetSite if length is None else partial(RollingSite, length=length)
        site = new_site(budget, since=since)
        site.seq = max(seq, self._seq)  # not its argument: an Ask that is under way may begin the membership
        local = self._new_local(site, self._site_id)
        local.follow(self.rule)
        return local

    def _replace(self, period: int, since: int) -> LocalBudget:
        """A new state of this period. Its site goes on with its numbers, so that no older message counts."""
        before = self._periods.states[period]
        local = self._periods.states[period] = self._make(before.site.budget, before.site.seq, since)
        return local

    # The present period

    @property
    def present(self) -> LocalBudget:
        return self._periods.present

    @property
    def ends_at(self) -> float | None:
        """The end of the present period, or of the open pane; None without."""
        rolling = self.present.rolling
        if rolling is not None and self.rule is not None:
            return min(rolling.ends_at, self._contact() + self.rule.lease)
        return None if self._periods.ends_at == inf else self._periods.ends_at

    def available_at(self, n: int) -> float | None:
        """The time at which a request that was refused may succeed, if it is known."""
        rolling = self.present.rolling
        return self.ends_at if rolling is None else rolling.returns_at(n - self.present.remaining)

    def advance(self, clock: Callable[[], float]) -> None:
        """Before anything else happens to a rolling budget."""
        if self.closed or self.rule is None or self.rule.rolling is None:
            return
        self.present.put_back()  # what threads took without the lock was taken before the clock is read
        now = clock()
        self.cut_off = self.present.site.limit > 0 and now >= self._contact() + self.rule.lease
        self.present.advance(now)

    def enter(self, now: float) -> list[UpItem]:
        """Go to the period of this moment."""
        if self.closed or self._periods.starts_at <= now < self._periods.ends_at:
            return []
        self._periods.enter(now)
        return self._hand_in(self._periods.drop_earlier())

    def set_rule(self, rule: BudgetRule, now: float) -> None:
        """With another calendar it is another budget of this name, and nothing was granted of it yet."""
        before, self.rule = self.rule, rule
        for local in self._periods.states.values():
            local.follow(rule)
        if self.closed or _calendar_fields(before) == _calendar_fields(rule):
            return
        for local in (*self._periods.states.values(), *self._hand_ins.values()):
            self._seq = max(self._seq, local.site.seq)
            local.close()
            local.discard()
        self._hand_ins.clear()
        asked = {period for period, local in self._periods.states.items() if local.asked}
        self._start(now)
        for period in asked & self._periods.states.keys():  # units may be granted, as to a site without a rule
            self._periods.states[period].known = True

    def seconds_to_tick(self, now: float) -> float:
        """Until the present period ends, or the next one must be prepared; or until units come back."""
        rolling = self.present.rolling
        if rolling is not None:
            return inf if rolling.closed or not self.present.asked else min(rolling.next_at, rolling.idle_at) - now
        return min(self._periods.ends_at - now, self._periods.seconds_to_prepare(now))

    def tick(self, now: float) -> list[UpItem]:
        """Go to the period of this moment. If it was used and ends soon, ask for a first share of the next one.

        A rolling budget that was not used for a window is handed in.
        """
        present, rolling = self.present, self.present.rolling
        if rolling is not None:
            return self._hand_in([present]) if rolling.idle_at <= now and not rolling.closed and present.asked else []
        items = self.enter(now)
        following = None if self.closed else self._periods.prepare(now, _is_used)
        return items if following is None else [*items, *self._periods.states[following].prefetch()]

    @property
    def overdraft(self) -> int:
        return sum(local.site.overdraft for local in self._periods.states.values())

    # Messages

    @property
    def _open(self) -> list[LocalBudget]:
        return [local for local in self._periods.states.values() if not local.site.closed]

    def receive(self, quota: Quota) -> tuple[UpItem, ...]:
        period = quota.budget.period
        local = self._periods.states.get(period)
        if local is None or local.site.closed:  # it was handed in, or never had a unit
            return (self._leave(quota.budget, self._site_id.incarnation),) if quota.reply else ()
        if local.site.is_outlived(quota):
            local = self._forget(period, quota.since)
            local.known = True
        local.receive(quota)
        return ()

    def reject(self, period: int) -> bool:
        """The site can have nothing of this period: forget what it had. True for the present period.

        It stays in its membership, because an `Ask` of that may be under way when the budget is made again.
        """
        local = self._periods.states.get(period)
        if local is None or local.site.closed:
            return False
        self._forget(period, local.site.since)
        return period == self._periods.period

    def _forget(self, period: int, since: int) -> LocalBudget:
        before = self._periods.states[period]
        before.close()
        before.discard()
        return self._replace(period, since)

    def repeat(self, now: float) -> list[UpItem]:
        """Forget what waits. The owner repeats it."""
        items = self.enter(now)
        for local in self._open:
            local.repeat()
        return items

    def proceed(self, connected: bool) -> list[Ask]:
        """Everything that waits was repeated. Without a connection a site keeps its room, and can use it."""
        return [ask for local in self._open if connected or not local.site.limit for ask in local.proceed()]

    def resend(self) -> list[UpItem]:
        """Instead of `proceed`, for a new connection."""
        asks = (((local.resend(),) if local.asked else local.proceed()) for local in self._open)
        return [*self.hand_ins(), *chain.from_iterable(asks)]

    # The end

    @property
    def active(self) -> bool:
        """True if there is anything to tell the coordinator."""
        return bool(self._hand_ins) or any(local.asked for local in self._periods.states.values())

    @property
    def settled(self) -> bool:
        """True if nothing is left to hand in."""
        return not self._hand_ins

    def hand_ins(self) -> list[BudgetLeave]:
        return [self._leave(*key) for key in self._hand_ins]

    def acknowledge(self, budget: BudgetId, incarnation: int) -> None:
        """The coordinator's disk has all that the incarnation handed in."""
        local = self._hand_ins.pop((budget, incarnation), None)
        if local is not None:
            local.discard()
            if local is self._periods.states.get(budget.period) and not self.closed:
                self._replace(budget.period, 0)

    def close(self) -> None:
        """Admit nothing more, and hand in what was spent in every period."""
        if not self.closed:
            self.closed = True
            self._hand_in(list(self._periods.states.values()))

    def renew(self, site_id: SiteId, now: float) -> None:
        """Hand in what this incarnation has spent, and continue as another one."""
        if not self.closed:
            self._hand_in(list(self._periods.states.values()))
        self._site_id = site_id
        if not self.closed:
            self._start(now)

    def abandon(self, site_id: SiteId, now: float) -> None:
        """In a forked child: what was granted belongs to the parent."""
        for local in self._periods.states.values():
            local.abandon()
        self._hand_ins.clear()
        self.closed = False
        self._site_id = site_id
        self._start(now)

    def _hand_in(self, locals_: list[LocalBudget]) -> list[UpItem]:
        leaves: list[UpItem] = []
        for local in locals_:
            asked = local.asked
            local.close()
            if asked:
                self._hand_ins[local.site.budget, self._site_id.incarnation] = local
                leaves.append(self._leave(local.site.budget, self._site_id.incarnation))
            else:
                local.discard()
        return leaves

    def _leave(self, budget: BudgetId, incarnation: int) -> BudgetLeave:
        local = self._hand_ins.get((budget, incarnation))
        return BudgetLeave(budget, incarnation, 0 if local is None else local.to_hand_in)


def _is_used(local: LocalBudget) -> bool:
    return local.site.used > 0 or local.site.refuse_from is not None


def _calendar_fields(rule: BudgetRule | None) -> tuple[object, ...]:
    return (None, "UTC", None, None) if rule is None else (rule.per, rule.tz, rule.anchor, rule.rolling)
