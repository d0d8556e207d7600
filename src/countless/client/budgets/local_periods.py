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
from math import inf
from zlib import crc32

from countless.client.budgets.local_budget import LocalBudget
from countless.core.budget.messages import Ask, BudgetId, DownMessage, Recall
from countless.core.budget.rule import BudgetRule
from countless.core.messages import SiteId
from countless.core.periods.site import BUDGET_LEADS_S, SitePeriods
from countless.wire.frames import BudgetLeave

UpItem = Ask | BudgetLeave
NewLocal = Callable[[BudgetId, SiteId], LocalBudget]


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
        self._unknown: dict[int, int] = {}  # by period: the last `seq` of a state that the coordinator does not know
        self._start(0.0)

    def _start(self, now: float) -> None:
        """A site that does not know the rule is in period 0."""
        calendar = None if self.rule is None else self.rule.calendar
        spread = crc32(f"{self._site_id} {self._name}".encode()) / (1 << 32)
        self._periods: SitePeriods[LocalBudget] = SitePeriods(calendar, self._new, spread, BUDGET_LEADS_S)
        self._periods.enter(now)
        self._unknown.clear()

    def _new(self, period: int) -> LocalBudget:
        budget = BudgetId(self._name, period)
        closed = self._hand_ins.get((budget, self._site_id.incarnation))
        if closed is not None:
            return closed
        self._unknown.pop(period, None)
        local = self._new_local(budget, self._site_id)
        local.follow(self.rule)
        return local

    # The present period

    @property
    def present(self) -> LocalBudget:
        return self._periods.present

    @property
    def ends_at(self) -> float | None:
        """Of the present period, or the open pane; None without."""
        window = self.present.window
        if window is not None and self.rule is not None:
            return min(window.ends_at, self._contact() + self.rule.lease)
        return None if self._periods.ends_at == inf else self._periods.ends_at

    def available_at(self, n: int) -> float | None:
        """When a request that was refused may succeed, if that is known."""
        window = self.present.window
        return self.ends_at if window is None else window.returns_at(n - self.present.remaining)

    def advance(self, now: float) -> list[UpItem]:
        """Before anything else happens to a rolling budget."""
        if self.closed or self.rule is None or self.rule.rolling is None:
            return []
        self.cut_off = self.present.site.limit > 0 and now >= self._contact() + self.rule.lease
        return list(self.present.advance(now))

    def enter(self, now: float) -> list[UpItem]:
        """Go to the period of this moment."""
        if self.closed or self._periods.starts_at <= now < self._periods.ends_at:
            return []
        for local in self._periods.states.values():
            local.site.withdraw()  # requests that wait are repeated in the present period
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
            local.close()
            local.discard()
        self._hand_ins.clear()
        self._start(now)

    def seconds_to_tick(self, now: float) -> float:
        """Until the present period ends, or the next one must be prepared; or until units come back."""
        window = self.present.window
        if window is not None:
            return inf if self.present.site.closed else min(window.next_at, window.idle_at) - now
        return min(self._periods.ends_at - now, self._periods.seconds_to_prepare(now))

    def tick(self, now: float) -> list[UpItem]:
        """Go to the period of this moment. If it was used and ends soon, ask for a first share of the next one.

        A rolling budget that was not used for a window is handed in.
        """
        window = self.present.window
        if window is not None:
            return self._hand_in([self.present]) if window.idle_at <= now and not self.present.site.closed else []
        items = self.enter(now)
        following = None if self.closed else self._periods.prepare(now, _is_used)
        return items if following is None else [*items, *self._periods.states[following].prefetch()]

    @property
    def overdraft(self) -> int:
        return sum(local.site.overdraft for local in self._periods.states.values())

    # Messages

    def receive(self, message: DownMessage) -> tuple[UpItem, ...]:
        local = self._periods.states.get(message.budget.period)
        if local is not None and not local.site.closed:
            return local.receive(message)
        if isinstance(message, Recall):  # it was handed in, or never had a unit
            return (self._leave(message.budget, self._site_id.incarnation),)
        return ()

    def replace(self, period: int) -> bool:
        """The coordinator knows nothing of this period: forget it. Whether it is the present one."""
        local = self._periods.states.get(period)
        if local is None or local.site.closed:
            return False
        local.close()
        local.discard()
        self._periods.states[period] = new = self._new(period)
        new.site.seq = local.site.seq  # an Ask that is under way must not count as newer
        self._unknown = {each: seq for each, seq in self._unknown.items() if each in self._periods.states}
        self._unknown[period] = new.site.seq
        return period == self._periods.period

    def resend(self, now: float) -> list[UpItem]:
        """What a new connection begins with."""
        self.enter(now)
        asks = [local.resend() for local in self._asked() if not local.site.closed]
        return [*self.hand_ins(), *asks]

    def _asked(self) -> list[LocalBudget]:
        """The states that the coordinator may know.

        One that it did not know may have been granted units since, by an `Ask` that was under way then.
        """
        states, unknown = self._periods.states.items(), self._unknown
        return [local for period, local in states if local.site.seq > unknown.get(period, 0) or local.site.limit]

    # The end

    @property
    def active(self) -> bool:
        """Whether there is anything to tell the coordinator."""
        return bool(self._hand_ins) or bool(self._asked())

    @property
    def settled(self) -> bool:
        """Whether nothing is left to hand in."""
        return not self._hand_ins

    def hand_ins(self) -> list[BudgetLeave]:
        return [self._leave(*key) for key in self._hand_ins]

    def acknowledge(self, budget: BudgetId, incarnation: int) -> None:
        """What the incarnation handed in is on the coordinator's disk."""
        local = self._hand_ins.pop((budget, incarnation), None)
        if local is not None:
            local.discard()
            if local is self._periods.states.get(budget.period) and not self.closed:
                self._periods.states[budget.period] = self._new(budget.period)

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
            local.close()
            if local.site.seq:
                self._hand_ins[local.site.budget, self._site_id.incarnation] = local
                leaves.append(self._leave(local.site.budget, self._site_id.incarnation))
            else:
                local.discard()
        return leaves

    def _leave(self, budget: BudgetId, incarnation: int) -> BudgetLeave:
        local = self._hand_ins.get((budget, incarnation))
        return BudgetLeave(budget, incarnation, 0 if local is None else local.site.spent)


def _is_used(local: LocalBudget) -> bool:
    return local.site.used > 0 or local.site.exhausted_from is not None


def _calendar_fields(rule: BudgetRule | None) -> tuple[object, ...]:
    return (None, "UTC", None) if rule is None else (rule.per, rule.tz, rule.anchor)
