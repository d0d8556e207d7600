"""The part of a budget that this process may spend: a limit that all clients of a coordinator share.

A request that fits the units this process was granted is admitted without a message. Other requests ask the coordinator
and wait. When the client closes it hands in what it spent; if the process is killed, all that it was granted stays
charged. A budget may have periods: the clock of this process decides to which one a request belongs. Or it is rolling:
units come back when a window has passed, by a monotonic clock.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from math import inf
from threading import RLock
from time import time
from typing import NamedTuple, TypeVar

from countless.client.budgets.holds import HOLD_S, Expiries, OpenHold, Settle
from countless.client.budgets.local_budget import LocalBudget
from countless.client.budgets.local_periods import LocalPeriods, NewLocal, UpItem
from countless.client.budgets.requests import (
    ALLOWED,
    EXHAUSTED,
    STARVED,
    UNREACHABLE,
    WAIT_S,
    HoldType,
    PeriodRefusal,
    RequestKey,
    Waiter,
)
from countless.client.budgets.spendable import Spendable
from countless.client.reentrant import Reentrant
from countless.clock import steady_clock
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.messages import Quota
from countless.core.budget.rule import IN_FLIGHT, OVERDRAFT, WAIT, BudgetRule
from countless.core.budget.site import ALLOWED as ADMITTED
from countless.core.budget.site import BudgetSite, Taken, Verdict
from countless.core.messages import SiteId
from countless.core.parameters import require_seconds
from countless.errors import AboveLimit, HoldExpired, InvalidParameter, UnknownBudget
from countless.wire.budgets import BudgetDownItem, BudgetLeave, BudgetLeaveAck, SetBudgetRule, rule_of

LINGER_S = 1.0  # a request that was not decided in time is repeated for so long: its program may come again
_ONE = 1  # CPython has one object for it, which True and 1.0 are not: comparing that makes take() 15 % faster
_T = TypeVar("_T")
Apply = Callable[[LocalBudget, int], Taken]


def _take(local: LocalBudget, n: int) -> Taken:
    return local.take(n)


def _overdraw(local: LocalBudget, n: int) -> Taken:
    local.overdraw(n)
    return ADMITTED


def in_memory(site: BudgetSite, site_id: SiteId) -> LocalBudget:
    return LocalBudget(site)


class BudgetLink(NamedTuple):
    """The calls of its client that a budget needs. All are made with the client's lock held."""

    send: Callable[[str, Sequence[UpItem]], None]
    connected: Callable[[], bool]
    count_waiter: Callable[[int], None]  # 1: a thread waits for the coordinator; -1: it does not any more
    new_local: NewLocal = in_memory  # for an incarnation of this process
    refusal: Callable[[str], PeriodRefusal | None] = lambda name: None  # left in the `state_dir`
    disabled: bool = False  # nothing is ever sent, and every request is allowed
    clock: Callable[[], float] = time  # it decides to which period a request belongs
    steady_clock: Callable[[], float] = steady_clock  # of rolling budgets, and of holds
    contact: Callable[[], float] = lambda: inf  # when, by this clock, the last frame was sent that was answered
    look_after: Callable[[str], None] = lambda name: None  # ask the budget now when its next tick is due
    count_expired: Callable[[], None] = lambda: None  # a hold has expired


class BudgetPart(Spendable):
    """The part of a budget that this process may spend. Programs have it as a `ClientBudget`, sessions as it is."""

    def __init__(self, name: str, site_id: SiteId, lock: RLock, link: BudgetLink) -> None:
        self.name = name
        self._lock = lock
        self._link = link
        self._periods = LocalPeriods(name, site_id, link.new_local, link.contact)
        self._local = self._periods.present
        self._ends_at: float | None = None  # when the present period, or the open pane, ends; None without
        self._clock = link.clock
        if link.disabled:
            self._local.units = repeat(True)
        self._changes = Reentrant()  # while one is under way, no request is decided
        self._waiters: dict[Waiter, Sequence[BudgetPart]] = {}  # and all budgets of the request, this one included
        self._lingering: deque[Waiter] = deque()  # those of them that have ended undecided, a moment ago
        self._rounds = Reentrant()  # in which all that wait are repeated
        self._round_due = False  # there may be units that must be returned, if no request takes them before
        self._holds = Expiries()
        self._rejections = 0
        self._rejection = ""  # the reason of the last one
        self._unusable = ""  # why this process cannot follow the rule of the budget

    def __repr__(self) -> str:
        return f"<BudgetPart {self}>"

    def __str__(self) -> str:
        with self._lock:
            spent, held, remaining = self._local.spent, self._local.site.held, self._local.remaining
        return f"{self.name!r}: {spent} spent, {held} held, {remaining} remaining"

    @property
    def remaining(self) -> int:
        with self._lock:
            self._enter()
            return self._local.remaining

    @property
    def left(self) -> int:
        with self._lock:
            self._enter()
            return self._local.left

    @property
    def rule(self) -> BudgetRule | None:
        return self._periods.rule

    @property
    def resets_at(self) -> float | None:
        with self._lock:
            self._enter()
            return None if self.rule is None or self.rule.per is None else self._ends_at

    def retry_after(self, n: int = 1) -> float | None:
        with self._lock:
            self._enter()
            at = self._periods.available_at(n)
            return None if at is None else max(0.0, at - self._clock())

    @property
    def overdraft(self) -> int:
        with self._lock:
            return self._periods.overdraft

    def take(self, n: int = 1, wait: float = WAIT_S) -> Decision:
        try:
            if n is _ONE and wait >= 0.0:  # not 0: comparing two types makes take() a fifth slower
                ends_at = self._ends_at
                if (ends_at is None or self._clock() < ends_at) and next(self._local.units, None) is not None:
                    return ALLOWED
            decision = self.attempt(_take, n) if wait >= 0 else None
        except TypeError:
            require_seconds("wait", wait)
            raise
        return super().take(n, wait) if decision is None else decision

    def _request(self, n: int, *, hold: bool) -> "BudgetRequest":
        return BudgetRequest(self, n, hold=hold)

    # For requests

    @property
    def rejections(self) -> int:
        """Answers of the coordinator so far that there is no such budget."""
        return self._rejections

    def require_known(self, rejections: int) -> None:
        """Raise `UnknownBudget` if the coordinator has rejected the budget more often than that."""
        if self._rejections > rejections:
            raise UnknownBudget(self.name, self._rejection)

    def attempt(self, apply: Apply, n: int, ask: bool = False) -> Decision | None:
        """None: it must wait for an answer of the coordinator. `ask`: it does, and is repeated in every round."""
        with self._lock:
            if self._changes.busy:
                return STARVED
            self._enter()
            if self._unusable:
                raise UnknownBudget(self.name, self._unusable)
            if self._periods.cut_off:
                return None
            site = self._local.site
            if not ask and type(n) is int and n > site.limit - site.spent - site.held and not self._local.decides(n):
                return ALLOWED if self._link.disabled else None
            changes = self._changes
            changes.busy = True  # as `run`, which makes take(5) a quarter slower
            try:
                if ask and site.limit and not self._link.connected():
                    self._local.repeat()  # so it keeps its room; what waits is repeated on the next connection
                taken = apply(self._local, n)
                if self._lingering and taken.verdict is Verdict.ALLOWED:
                    self.end_lingering((self.name, n))
                return ALLOWED if taken is ADMITTED else self._decision(taken, n)
            finally:
                changes.busy = False
                if changes.deferred:
                    changes.call_deferred()

    def fits(self, n: int) -> bool:
        """True if a request is admitted now, without a message."""
        with self._lock:
            self._enter()
            return n <= self._local.remaining

    def refuses(self, n: int) -> bool:
        with self._lock:
            return self._local.refuses(n)

    def stay(self, n: int) -> None:
        """A request that waits for other budgets needs these units, which are there."""
        self._local.stay(n)

    def linger(self, n: int, wants: bool) -> None:
        """A request that has ended undecided comes again, perhaps. `wants`: the coordinator has not answered it."""
        self._send(self._changes.run(self._local.linger, n, wants))

    def end_lingering(self, key: RequestKey) -> Waiter | None:
        """The request has come again. Returns the one that has lingered for it."""
        for waiter in self._lingering:
            if waiter.key == key:
                self._lingering.remove(waiter)
                self._waiters.pop(waiter, None)
                self._round_due = True  # some of its units may be left
                return waiter
        return None

    def start_waiting(self, waiter: Waiter, parts: "Sequence[BudgetPart] | None" = None) -> None:
        """`parts`: all budgets of the request, if there are others."""
        parts = parts or (self,)
        with self._lock:
            stays = any(part._lingering and part._local.remaining for part in parts)
            for part in parts:
                part._link.count_waiter(1)
                before = part.end_lingering(waiter.key)
                if before is not None:
                    waiter.number = before.number  # it takes its place in line
                part._waiters[waiter] = parts
            if stays and self._link.connected():
                self._repeat()  # units that were kept for requests that may come again are returned for this one
            else:
                waiter.serve()

    def stop_waiting(self, waiter: Waiter) -> None:
        with self._lock:
            if waiter not in self._waiters:
                return
            self._link.count_waiter(-1)
            if waiter.ended:
                del self._waiters[waiter]
                return
            waiter.lingers_until = self._link.steady_clock() + LINGER_S
            self._lingering.append(waiter)
            self._link.look_after(self.name)

    def undecided(self, n: int) -> Decision:
        """The reason for which a request of `n` units was not decided. Exhausted units of a period stay exhausted, even
        if the process was killed."""
        with self._lock:
            refused_from = self._local.refused_from
            if refused_from is not None and n >= refused_from and self.rule is not None and self.rule.per is not None:
                return self._exhausted(n)
            refusal = None if self._local.site.number else self._link.refusal(self.name)
            if refusal is not None and n >= refusal.refused_from and self._link.clock() < refusal.ends_at:
                return Decision(Reason.EXHAUSTED, refusal.ends_at - self._link.clock())
            return STARVED if self._link.connected() else UNREACHABLE

    def unreachable_by(self, rule: str) -> bool:
        """True if there is no connection, and this is what to do then."""
        with self._lock:
            known = self.rule
            return known is not None and known.on_unreachable == rule and not self._link.connected()

    @property
    def usual_expiry(self) -> float:
        """Seconds after which holds expire if the program does not say."""
        in_flight = self.rule is not None and self.rule.kind == IN_FLIGHT
        return inf if in_flight or self._link.disabled else HOLD_S

    def open_hold(self, kind: type[HoldType], units: int, expires_in: float, settle: Settle) -> HoldType:
        """A hold for the program. `settle` ends the reservation, which may be of other budgets as well."""
        if expires_in == inf:
            return kind(units, settle)
        hold = OpenHold(units, settle)
        with self._lock:
            if self._holds.add(hold, self._link.steady_clock() + expires_in):
                self._link.look_after(self.name)
        return kind(units, partial(self._settle_hold, hold), expires_in)

    def _settle_hold(self, hold: OpenHold, units: int, used: int) -> None:
        with self._lock:
            self._expire_holds()
            if not hold.end():
                raise HoldExpired(self.name, units)
            self._holds.settled()
            hold.settle(units, used)

    def _expire_holds(self) -> None:
        now = self._link.steady_clock()
        while (hold := self._holds.take_due(now)) is not None:
            self._link.count_expired()
            hold.settle(hold.units, hold.units)

    def settle(self, local: LocalBudget, units: int, used: int) -> None:
        if not self._link.disabled:
            with self._lock:
                self._changes.defer(partial(self._settle, local, units, used))

    # With the lock held

    def _decision(self, taken: Taken, n: int) -> Decision | None:
        if self._link.disabled:
            return ALLOWED
        self._send(taken.messages)
        if taken.verdict is Verdict.ALLOWED:
            return ALLOWED
        if self._local.site.closed:  # the client, or this period until it is handed in
            return UNREACHABLE if self._periods.closed else None
        if taken.verdict is Verdict.WAITING:
            return None
        return self._exhausted(n)

    def _exhausted(self, n: int) -> Decision:
        if self.rule is not None and n > self.rule.limit:
            raise AboveLimit(self.name, n, self.rule.limit)
        at = self._periods.available_at(n)
        return EXHAUSTED if at is None else Decision(Reason.EXHAUSTED, max(0.0, at - self._clock()))

    def _send(self, items: Sequence[UpItem]) -> None:
        if items:
            self._link.send(self.name, items)
            for waiter in self._waiters:
                waiter.asked = True

    def _enter(self) -> None:
        """Go to the period that the clock shows, and end the holds whose time is over."""
        if self._ends_at is not None and not self._changes.busy:
            site, room = self._local.site, self._local.remaining
            self._send(self._changes.run(self._update, partial(self._periods.enter, self._clock())))
            if self._local.rolling is site and not site.keep and site.room > room:
                self._round_due = True
                self._link.look_after(self.name)
        if self._holds:
            self._expire_holds()

    def _settle(self, local: LocalBudget, units: int, used: int) -> None:
        self._changes.run(self._update, partial(local.settle, units, used))
        if self._waiters or not local.site.keep:
            self._repeat()

    def _update(self, change: Callable[[], _T]) -> _T:
        self._periods.advance(self._clock)
        result = change()
        self._show_present()
        return result

    def _show_present(self) -> None:
        self._local, self._ends_at = self._periods.present, self._periods.ends_at

    # Rounds

    def _repeat(self) -> None:
        """Repeat the requests that wait, in order. Then ask for the first that still does, or return what is left."""
        self._rounds.defer(partial(self._rounds.run, self._round, BudgetPart._proceed))

    def _round(self, proceed: "Callable[[BudgetPart], None]") -> None:
        parts = self._together()
        others = [part._rounds for part in parts if not part._rounds.busy]
        for rounds in others:
            rounds.busy = True  # a request to several that is admitted settles at each: that must not begin another one
        try:
            for part in parts:
                part._changes.run(part._update, part._begin_round)
            waiters = {waiter for part in parts for waiter in part._waiters}
            for waiter in sorted(waiters, key=Waiter.order):
                waiter.serve()
            for part in parts:
                part._changes.run(part._proceed if part is not self else partial(proceed, part))
        except BaseException:  # of a signal handler: the session begins another round
            for part in parts:
                part._round_due = True
                part._link.look_after(part.name)
            raise
        finally:
            for rounds in others:
                rounds.busy = False
            for rounds in others:
                rounds.call_deferred()

    def _together(self) -> "list[BudgetPart]":
        """With all budgets of requests that wait here, of those that wait there, and so on."""
        found, unseen = {self: None}, [self]
        while unseen:
            for parts in unseen.pop()._waiters.values():
                new = [part for part in parts if part not in found]
                found.update(dict.fromkeys(new))
                unseen += new
        return list(found)

    def _begin_round(self) -> None:
        self._round_due, now = False, self._link.steady_clock()
        while self._lingering and self._lingering[0].lingers_until <= now:
            self._waiters.pop(self._lingering.popleft(), None)
        self._send(self._periods.repeat(self._clock()))

    def _proceed(self) -> None:
        self._send(self._periods.proceed(self._link.connected()))

    # For the session, which holds the lock

    @property
    def active(self) -> bool:
        """True if there is anything to tell the coordinator."""
        return self._periods.active

    @property
    def leased(self) -> bool:
        """True if it needs an answer of the coordinator from time to time."""
        return self.rule is not None and self.rule.rolling is not None

    @property
    def settled(self) -> bool:
        """True if nothing is left to hand in."""
        return self._periods.settled

    def hand_ins(self) -> list[BudgetLeave]:
        return self._periods.hand_ins()

    def resend(self) -> list[UpItem]:
        """The messages that a new connection begins with."""
        items: list[UpItem] = []
        self._rounds.run(self._round, lambda part: items.extend(part._periods.resend()))
        return items

    def seconds_to_tick(self) -> float:
        """Until `tick` should be called."""
        if self._round_due:
            return 0.0
        next_at = min(self._holds.next_at(), self._lingering[0].lingers_until if self._lingering else inf)
        return min(self._periods.seconds_to_tick(self._clock()), next_at - self._link.steady_clock())

    def tick(self) -> None:
        """The present period has ended, or ends soon: then ask for units of the next one. Or a hold has expired."""
        self._expire_holds()
        self._send(self._change(partial(self._periods.tick, self._clock())))

    def receive(self, item: BudgetDownItem) -> None:
        self._change(partial(self._receive, item))

    def _receive(self, item: BudgetDownItem) -> None:
        if isinstance(item, Quota):
            granted = self._local.site.granted
            self._send(self._periods.receive(item))
            if self._local.site.granted > granted or item.refuse_from is not None:
                for waiter in self._lingering:
                    waiter.answered = waiter.asked
        elif isinstance(item, BudgetLeaveAck):
            self._periods.acknowledge(item.budget, item.incarnation)
        elif isinstance(item, SetBudgetRule):
            self._set_rule(item)
        elif self._periods.reject(item.budget.period):
            self._reject(item.reason)

    def _set_rule(self, item: SetBudgetRule) -> None:
        try:
            rule = rule_of(item)
        except InvalidParameter as error:  # an unknown time zone, or a newer coordinator
            self._unusable = f"its rule cannot be followed here: {error}"
            self._reject(self._unusable)
        else:
            self._unusable = ""
            self._clock = self._link.clock if rule.rolling is None else self._link.steady_clock
            self._periods.set_rule(rule, self._clock())

    def _reject(self, reason: str) -> None:
        self._rejections += 1
        self._rejection = reason
        while self._lingering:
            self._waiters.pop(self._lingering.popleft(), None)

    def end(self) -> None:
        """Admit nothing more, and hand in what was spent."""
        self._change(self._periods.close)

    def renew(self, site_id: SiteId) -> None:
        """The coordinator has retired the incarnation: hand in what it spent, and ask as a new one."""
        self._change(partial(self._periods.renew, site_id, self._clock()))

    def after_fork(self, site_id: SiteId) -> None:
        """In the child: what was granted belongs to the parent."""
        self._changes = Reentrant()
        self._rounds = Reentrant()
        self._waiters.clear()
        self._lingering.clear()
        self._holds.clear()
        self._periods.abandon(site_id, self._clock())
        self._show_present()

    def _change(self, change: Callable[[], _T]) -> _T:
        """Change the state, and repeat the requests that wait."""
        result = self._changes.run(self._update, change)
        self._repeat()
        return result


class BudgetRequest:
    """A request to one budget. `to_spend`: units that are held will be spent at once."""

    __slots__ = (
        "_budget",
        "_hold",
        "_local",
        "_n",
        "_queued",
        "_rejections",
        "_to_spend",
        "key",
        "open_hold",
        "start_waiting",
        "stop_waiting",
    )

    def __init__(self, budget: BudgetPart, n: int, *, hold: bool, to_spend: bool = False) -> None:
        self._budget = budget
        self._n = n
        self._hold = hold
        self._to_spend = to_spend
        self._queued = False
        self._local: LocalBudget | None = None  # where it was decided last
        self._rejections = budget.rejections
        self.key = budget.name, n
        self.start_waiting = budget.start_waiting
        self.stop_waiting = budget.stop_waiting
        self.open_hold = budget.open_hold

    @property
    def budget(self) -> str:
        return self._budget.name

    @property
    def fits(self) -> bool:
        """True if it is admitted now, without a message."""
        return self._budget.fits(self._n)

    @property
    def refused(self) -> bool:
        return self._budget.refuses(self._n)

    @property
    def waits_for_connection(self) -> bool:
        return self._budget.unreachable_by(WAIT)

    @property
    def may_overdraw(self) -> bool:
        return self._budget.unreachable_by(OVERDRAFT)

    def attempt(self) -> Decision | None:
        return self._attempt(ask=False)

    def ask(self) -> Decision | None:
        return self._attempt(ask=True)

    def _attempt(self, ask: bool) -> Decision | None:
        self._budget.require_known(self._rejections)
        return self._budget.attempt(self._apply, self._n, ask)

    def stay_queued(self) -> None:
        self._queued = True

    def stay(self) -> None:
        """Keep its units, which are there: it waits for other budgets."""
        self._budget.stay(self._n)

    def linger(self, wants: bool) -> None:
        self._budget.linger(self._n, wants)

    def timed_out(self) -> Decision:
        decision = self._budget.attempt(self._overdraw_and_apply, self._n, ask=True) if self.may_overdraw else None
        return self.undecided() if decision is None else decision

    def undecided(self) -> Decision:
        return self._budget.undecided(self._n)

    def overdraw(self) -> None:
        """Make room for it, whatever was granted."""
        self._budget.attempt(_overdraw, self._n, ask=True)

    def _overdraw_and_apply(self, local: LocalBudget, n: int) -> Taken:
        local.overdraw(n)
        return self._apply(local, n)

    def _apply(self, local: LocalBudget, n: int) -> Taken:
        self._local = local
        if self._to_spend:
            local.require_spending()
        return local.reserve(n, self._queued) if self._hold else local.take(n)

    @property
    def usual_expiry(self) -> float:
        return self._budget.usual_expiry

    def hold(self, kind: type[HoldType], n: int, expires_in: float | None) -> HoldType:
        return self.open_hold(kind, n, self.usual_expiry if expires_in is None else expires_in, self.settle)

    def settle(self, units: int, used: int) -> None:
        if self._local is not None:
            self._budget.settle(self._local, units, used)

    def undo(self) -> None:
        if self._hold:
            self.settle(self._n, 0)
