"""`client.budget(name)`: a limit that all clients of a coordinator spend together.

A request that fits the units this process was granted is admitted without a message. Other requests ask the coordinator
and wait. When the client closes it hands in what it spent; if the process is killed, all that it was granted stays
charged.
"""

from collections.abc import Callable
from threading import Condition, RLock
from time import monotonic
from typing import NamedTuple

from countless.core.budget.amounts import require_amount
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.hold import Hold
from countless.core.budget.messages import Ask, BudgetId, Exhausted, Grant, Recall
from countless.core.budget.site import BudgetSite, Taken, Verdict
from countless.core.messages import SiteId
from countless.errors import Exhausted as ExhaustedError
from countless.errors import InvalidParameter, Starved, UnknownBudget, Unreachable
from countless.wire.frames import BudgetDownItem, BudgetLeave, BudgetLeaveAck, BudgetRejected

WAIT_S = 1.0

_ALLOWED = Decision(Reason.ALLOWED)
_EXHAUSTED = Decision(Reason.EXHAUSTED)
_STARVED = Decision(Reason.STARVED)
_UNREACHABLE = Decision(Reason.UNREACHABLE)


class BudgetLink(NamedTuple):
    """What a budget needs of its client. All are called with the client's lock held."""

    send: Callable[[str, tuple[Ask, ...]], None]
    connected: Callable[[], bool]
    count_waiter: Callable[[int], None]  # 1: a thread waits for the coordinator; -1: it does not any more
    disabled: bool = False  # nothing is ever sent, and every request is allowed


class ClientBudget:
    """The part of a budget that this process may spend. Safe to use from many threads."""

    def __init__(self, name: str, site_id: SiteId, lock: RLock, link: BudgetLink) -> None:
        self.name = name
        self._lock = lock
        self._link = link
        self._changed = Condition(lock)
        self._site_id = site_id
        self._site = BudgetSite(BudgetId(name))
        self._rejections = 0
        self._rejection = ""  # the reason of the last one
        self._waiting = 0  # threads
        self._hand_ins: dict[int, int] = {}  # by incarnation: spent units that are not acknowledged yet

    def __repr__(self) -> str:
        return f"<ClientBudget {self.name!r}: {self._site.spent} spent, {self._site.held} held, room {self._site.room}>"

    def take(self, n: int = 1, wait: float = WAIT_S) -> Decision:
        """Spend `n` units. Waits for the coordinator, at most `wait` seconds, only if this process has too few.

        The decision is true if the units may be used. Raises `UnknownBudget` if the coordinator has no such budget.
        """
        return self._decide(BudgetSite.take, n, wait)

    def reserve(self, n: int, wait: float = WAIT_S) -> Hold:
        """Hold `n` units until it is known how many are used. Raises `Exhausted`, `Starved` or `Unreachable`.

        >>> def call(tokens: ClientBudget) -> None:
        ...     with tokens.reserve(4096) as hold:
        ...         hold.settle(1200)  # an exception before this settles 0
        """
        with self._lock:
            decision = self._decide(BudgetSite.reserve, n, wait)
            if decision.reason is Reason.EXHAUSTED:
                raise ExhaustedError(self.name, n)
            if decision.reason is Reason.STARVED:
                raise Starved(f"no answer about budget {self.name!r} in {wait} s")
            if decision.reason is Reason.UNREACHABLE:
                raise Unreachable(f"no connection to the coordinator of budget {self.name!r}")
            site = self._site
            return Hold(n, lambda units, used: self._settle(site, units, used))

    def _decide(self, request: Callable[[BudgetSite, int], Taken], n: int, wait: float) -> Decision:
        if not wait >= 0:
            raise InvalidParameter("wait", wait, "a number of seconds from 0")
        with self._lock:
            if self._link.disabled:
                require_amount("n", n)
                return _ALLOWED
            decision = self._request(request, n)
            return self._wait(request, n, wait) if decision is None else decision

    def _request(self, request: Callable[[BudgetSite, int], Taken], n: int) -> Decision | None:
        """None: it waits for an answer of the coordinator."""
        taken = request(self._site, n)
        if taken.messages:
            self._link.send(self.name, taken.messages)
        if taken.verdict is Verdict.ALLOWED:
            return _ALLOWED
        if self._site.closed:
            return _UNREACHABLE
        return _EXHAUSTED if taken.verdict is Verdict.EXHAUSTED else None

    def _wait(self, request: Callable[[BudgetSite, int], Taken], n: int, wait: float) -> Decision:
        deadline, rejections = monotonic() + wait, self._rejections
        self._waiting += 1
        self._link.count_waiter(1)
        try:
            while self._changed.wait(deadline - monotonic()):
                if self._rejections > rejections:
                    raise UnknownBudget(self.name, self._rejection)
                decision = self._request(request, n)
                if decision is not None:
                    return decision
            return _STARVED if self._link.connected() else _UNREACHABLE
        finally:
            self._waiting -= 1
            self._link.count_waiter(-1)
            if not self._waiting:
                self._site.withdraw()

    def _settle(self, site: BudgetSite, units: int, used: int) -> None:
        with self._lock:
            if self._link.disabled:
                return require_amount("used", used, 0, units)
            messages = site.settle(units, used)
            if site is self._site:
                if messages:
                    self._link.send(self.name, messages)
                self._changed.notify_all()
        return None

    # For the session, which holds the lock

    @property
    def active(self) -> bool:
        """Whether there is anything to tell the coordinator."""
        return bool(self._hand_ins) or self._site.seq > 0

    @property
    def settled(self) -> bool:
        """Whether nothing is left to hand in."""
        return not self._hand_ins

    def hand_ins(self) -> list[BudgetLeave]:
        return [BudgetLeave(self._site.budget, incarnation, spent) for incarnation, spent in self._hand_ins.items()]

    def resend(self) -> list[Ask | BudgetLeave]:
        """What a new connection begins with."""
        asks = [self._site.resend()] if self._site.seq and not self._site.closed else []
        return [*self.hand_ins(), *asks]

    def receive(self, item: BudgetDownItem) -> tuple[Ask, ...]:
        replies: tuple[Ask, ...] = ()
        if isinstance(item, BudgetLeaveAck):
            self._hand_ins.pop(item.incarnation, None)
        elif isinstance(item, Grant | Recall | Exhausted):
            replies = self._site.receive(item)
        elif not self._site.closed:
            if isinstance(item, BudgetRejected):
                self._rejections += 1
                self._rejection = item.reason
            self._replace_site(self._site.seq)
        self._changed.notify_all()
        return replies

    def end(self) -> None:
        """Admit nothing more, and hand in what was spent."""
        if not self._site.closed:
            spent = self._site.close()
            if self._site.seq:
                self._hand_ins[self._site_id.incarnation] = spent
        self._changed.notify_all()

    def renew(self, site_id: SiteId) -> None:
        """The coordinator has retired the incarnation: hand in what it spent, and ask as a new one."""
        closed = self._site.closed
        self.end()
        self._site_id = site_id
        if not closed:
            self._replace_site(0)

    def after_fork(self, site_id: SiteId) -> None:
        """In the child: what was granted belongs to the parent."""
        self._site_id = site_id
        self._hand_ins.clear()
        self._waiting = 0
        self._changed = Condition(self._lock)
        self._replace_site(0)

    def _replace_site(self, seq: int) -> None:
        self._site.close()
        self._site = BudgetSite(BudgetId(self.name))
        self._site.seq = seq
