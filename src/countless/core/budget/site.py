"""A site of a budget: it admits requests within its own limit, and asks for more when its room is too small.

At every moment `spent + held <= limit`, so a request that fits is admitted without a message. With `keep` the site
keeps its room until it has used it, or is recalled. Without, it returns with its next `Ask` what the requests that wait
did not use. The owner calls, after a message, a settlement, or when a request is withdrawn:

1. `repeat()`;
2. `take` or `reserve` for each request that waits, in order, and `stay` for units that must not be returned;
3. `proceed()`, and sends what it returns.

On a new connection it sends `resend()`. If a message says that the site `is_outlived`, the budget was deleted and made
again: the owner goes on with a new site, which gets its `seq` and the `since` of the message.
"""

from enum import StrEnum
from typing import NamedTuple

from countless.core.budget.amounts import MAX_AMOUNT, require_amount
from countless.core.budget.messages import Ask, BudgetId, Pane, Quota
from countless.errors import InvalidParameter, ProtocolError

EARLY_PERCENT = 10


class Verdict(StrEnum):
    ALLOWED = "allowed"
    EXHAUSTED = "exhausted"
    WAITING = "waiting"


class Taken(NamedTuple):
    """The outcome of a request, and the messages to send."""

    verdict: Verdict
    messages: tuple[Ask, ...] = ()


ALLOWED = Taken(Verdict.ALLOWED)
_EXHAUSTED = Taken(Verdict.EXHAUSTED)
_WAITING = Taken(Verdict.WAITING)


class BudgetSite:
    """One budget at one site.

    `early_percent`: the site asks for more, while it still has room, when less than this share of its last grant is
    left. So most requests do not wait for a round trip. 0 turns it off.

    >>> site = BudgetSite(BudgetId("tokens"))
    >>> site.take(3).verdict, site.want
    (<Verdict.WAITING: 'waiting'>, 3)
    >>> site.receive(Quota(BudgetId("tokens"), since=1, number=1, granted=50, keep=True)), site.repeat()
    (None, None)
    >>> site.take(3).verdict, site.room, site.proceed()
    (<Verdict.ALLOWED: 'allowed'>, 47, ())
    """

    __slots__ = (
        "_asked",
        "_early_below",
        "_first",
        "_repeating",
        "_reply",
        "_staying",
        "budget",
        "closed",
        "early_percent",
        "granted",
        "held",
        "keep",
        "limit",
        "more",
        "number",
        "overdraft",
        "queued",
        "refuse_from",
        "seq",
        "since",
        "spent",
        "want",
    )

    def __init__(self, budget: BudgetId, *, early_percent: int = EARLY_PERCENT, seq: int = 0, since: int = 0) -> None:
        require_amount("early_percent", early_percent, 0, 50)
        self.budget = budget
        self.early_percent = early_percent
        self.since = since  # names the membership; 0: no Quota of it has come
        self.seq = seq
        self.number = 0
        self.granted = 0
        self.limit = 0  # granted, and not returned
        self.spent = 0
        self.held = 0
        self.overdraft = 0  # units that were used and not granted
        self.want = 0  # the first request that waits
        self.more = 0  # the sum of the others that wait
        self.queued = False  # whether the first waits on if it is refused
        self.keep = False
        self.refuse_from: int | None = None  # the smallest request known to be unavailable
        self.closed = False
        self._first = seq  # its membership began with a later Ask
        self._asked = False  # for a request that waits, and no Quota has come since
        self._reply = False
        self._repeating = False
        self._staying = 0
        self._early_below = 0  # the room below which it asks early; 0 once it has

    def __repr__(self) -> str:
        return (
            f"<BudgetSite {self.budget.name!r} period {self.budget.period}: {self.spent} spent, {self.held} held, "
            f"limit {self.limit} of {self.granted} granted, {'keeps' if self.keep else 'returns'} its room>"
        )

    @property
    def used(self) -> int:
        return self.spent + self.held

    @property
    def room(self) -> int:
        """The units that the site can admit without a message."""
        return self.limit - self.spent - self.held

    # Requests

    def take(self, n: int) -> Taken:
        """Spend `n` units."""
        if type(n) is not int or not 1 <= n <= MAX_AMOUNT:  # inline: calling it always makes take(n) 25 % slower
            require_amount("n", n)
        room = self.limit - self.spent - self.held - n
        if room < 0:
            return self._ask_for(n)
        self.spent += n
        return ALLOWED if room >= self._early_below else self._ask_early(room)

    def reserve(self, n: int, queued: bool = False) -> Taken:
        """Hold `n` units, until `settle` says how many of them were used.

        `queued`: it is repeated even if it is refused, until it is withdrawn.
        """
        require_amount("n", n)
        room = self.limit - self.spent - self.held - n
        if room < 0:
            return self._ask_for(n, queued)
        self.held += n
        return ALLOWED if room >= self._early_below else self._ask_early(room)

    def settle(self, units: int, used: int) -> None:
        """End a hold of `units`, of which `used` were spent. The others are free again at once."""
        require_amount("units", units)
        if self.closed:  # its holds were handed in as spent
            return
        if units > self.held:
            raise InvalidParameter("units", units, f"at most the {self.held} units that are held")
        require_amount("used", used, 0, units)
        self.held -= units
        self.spent += used
        if used < units:
            self.refuse_from = None  # the next request may be possible: it asks

    def overdraw(self, n: int) -> None:
        """Make room for `n` units that were not granted. The next `Ask` reports it."""
        missing = 0 if self.closed else max(0, n - self.room)
        self.granted += missing
        self.limit += missing
        self.overdraft += missing
        if missing:
            self.keep = False

    def set_aside(self, maximum: int) -> int:
        """Count up to `maximum` units as spent, for requests of one unit that the owner admits by itself.

        The owner calls `put_back` with the units that it has not admitted before it calls anything else. The units at
        which the site asks early are not set aside.
        """
        units = max(0, min(self.room - self._early_below, maximum)) if self.keep else 0
        self.spent += units
        return units

    def put_back(self, units: int) -> None:
        self.spent -= units

    def prefetch(self) -> tuple[Ask, ...]:
        """Ask for a first share before there is a request, as for a period that begins soon."""
        return self._ask_for(1).messages if self.room == 0 else ()

    def close(self, holds_end: bool = False) -> int:
        """The units to hand in when the site leaves. It admits nothing afterwards.

        Its holds become spent, unless they end with the site.
        """
        self.closed, self.keep = True, False
        self.spent, self.held, self.want, self.more = self.spent if holds_end else self.used, 0, 0, 0
        self.limit, self.refuse_from = self.spent, 1
        return sum(self._account())

    # Messages

    def receive(self, quota: Quota) -> None:
        """The newest `Quota` replaces all before it. Older ones, and those of other memberships, are ignored."""
        if quota.budget != self.budget:
            raise ProtocolError(f"a message for budget {quota.budget} reached a site of {self.budget}")
        ours = quota.since == self.since or (self.since == 0 and quota.since > self._first)
        if self.closed or not ours or quota.number <= self.number:
            return
        self.since, self.number = quota.since, quota.number
        if quota.granted > self.granted:
            grown = quota.granted - self.granted
            self.granted = quota.granted
            self.limit += grown
            self._early_below = -(-self.early_percent * grown // 100)
        if not quota.keep:
            self._early_below = 0
        self.keep, self.refuse_from, self._reply = quota.keep, quota.refuse_from, quota.reply
        self._asked = False

    def is_outlived(self, quota: Quota) -> bool:
        """The budget was deleted and made again: a later membership of this site has begun."""
        return 0 < self.since < quota.since and quota.budget == self.budget

    def repeat(self) -> None:
        """Forget what waits: the owner repeats it."""
        self.want = self.more = self._staying = 0
        self._repeating = True

    def stay(self, n: int) -> None:
        """Do not return `n` units of the room: a request for several budgets waits for another one."""
        self._staying += n

    def proceed(self) -> tuple[Ask, ...]:
        """All requests that wait were repeated: ask for the first of them, or return what they did not use."""
        self._repeating = False
        if self.closed:
            return ()
        returns = not self.keep and self.room > self._staying
        return (self.resend(),) if returns or self._reply or (self.want and not self._asked) else ()

    def resend(self) -> Ask:
        """All that the coordinator may have missed: for a new connection."""
        if self.want:
            self.keep = False
        panes: tuple[Pane, ...] = ()
        if not self.keep:
            panes = self._hand_over()
            self.limit -= max(0, self.room - self._staying)
            self._early_below = 0
        self._asked, self._reply = self.want > 0, False
        return self._ask(self.want, self.more, panes)

    def _hand_over(self) -> tuple[Pane, ...]:
        """Rolling sites hand over what they took, which will come back."""
        return ()

    def _ask_early(self, room: int) -> Taken:
        if room == 0 or self._repeating or not self.keep:
            return ALLOWED
        self._early_below = 0
        return Taken(Verdict.ALLOWED, (self._ask(0, 1, ()),))

    def _ask_for(self, n: int, queued: bool = False) -> Taken:
        if self.refuse_from is not None and n >= self.refuse_from:
            return _EXHAUSTED
        if self.want:
            self.more += n
        else:
            self.want, self.queued = n, queued
        return _WAITING if self._repeating or self._asked else Taken(Verdict.WAITING, (self.resend(),))

    def _ask(self, want: int, more: int, panes: tuple[Pane, ...]) -> Ask:
        self.seq += 1
        totals = self.granted, self.granted - self.limit, *self._account()
        queued = want > 0 and self.queued
        return Ask(self.budget, self.seq, self.since, self.number, *totals, want, more, self.keep, panes, queued)

    def _account(self) -> tuple[int, int]:
        """The units spent and held, as an `Ask` tells them."""
        return self.spent, self.held
