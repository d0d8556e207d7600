"""A site of a budget: it admits requests within its own limit, and asks for more when its room is too small.

At every moment `spent + held <= limit`, so a request that fits is admitted without a message. Every input returns the
messages it causes. After a message or a `settle` the owner repeats the requests that wait (`take` or `reserve` again);
when none waits any longer it calls `withdraw`, and on a new connection `resend`.

| received             | effect                                                                                     |
|----------------------|--------------------------------------------------------------------------------------------|
| an earlier round     | none                                                                                       |
| `Grant`              | the limit rises to the one granted; a lower one has no effect                              |
| `Recall`, new round  | the room is returned: `limit = spent + held`; requests may be asked for again; an `Ask`    |
| `Recall` again       | an `Ask`                                                                                   |
| `Exhausted`          | requests of that weight are refused without a message; an `Ask` if holds returned units    |
"""

from enum import StrEnum
from typing import NamedTuple

from countless.core.budget.amounts import MAX_AMOUNT, require_amount
from countless.core.budget.messages import Ask, BudgetId, DownMessage, Grant, Recall
from countless.errors import InvalidParameter, ProtocolError

EARLY_PERCENT = 10


class Verdict(StrEnum):
    ALLOWED = "allowed"
    EXHAUSTED = "exhausted"
    WAITING = "waiting"


class Taken(NamedTuple):
    """What became of a request, and the messages to send."""

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
    >>> site.receive(Grant(BudgetId("tokens"), 0, 50))
    ()
    >>> site.take(3).verdict, site.room
    (<Verdict.ALLOWED: 'allowed'>, 47)
    """

    __slots__ = (
        "_early_below",
        "_reported",
        "budget",
        "closed",
        "early_percent",
        "exhausted_from",
        "held",
        "limit",
        "overdraft",
        "refused",
        "rolling",
        "round",
        "seq",
        "spent",
        "want",
    )

    def __init__(self, budget: BudgetId, *, early_percent: int = EARLY_PERCENT) -> None:
        require_amount("early_percent", early_percent, 0, 50)
        self.budget = budget
        self.early_percent = early_percent
        self.spent = 0
        self.held = 0
        self.limit = 0
        self.overdraft = 0  # units of the limit that were not granted
        self.round = 0
        self.seq = 0
        self.want = 0  # the largest request that was asked for and waits
        self.closed = False
        self.rolling = False  # units that were spent come back (`rolling.py`), so they count as held
        self.refused = False  # whether a request was refused; for the owner, who clears it
        self.exhausted_from: int | None = None  # the smallest request known to be unavailable
        self._reported = 0  # spent + held in the last Ask
        self._early_below = 0  # the room below which it asks early; 0 once it has

    def __repr__(self) -> str:
        return (
            f"<BudgetSite {self.budget.name!r} period {self.budget.period}: {self.spent} spent, {self.held} held, "
            f"limit {self.limit}, round {self.round}>"
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

    def reserve(self, n: int) -> Taken:
        """Hold `n` units, until `settle` says how many of them were used."""
        require_amount("n", n)
        room = self.limit - self.spent - self.held - n
        if room < 0:
            return self._ask_for(n)
        self.held += n
        return ALLOWED if room >= self._early_below else self._ask_early(room)

    def settle(self, units: int, used: int) -> tuple[Ask, ...]:
        """End a hold of `units`, of which `used` were spent. The others are free again at once."""
        require_amount("units", units)
        if self.closed:  # its holds were handed in as spent
            return ()
        if units > self.held:
            raise InvalidParameter("units", units, f"at most the {self.held} units that are held")
        require_amount("used", used, 0, units)
        self.held -= units
        self.spent += used
        self._repay(units - used)
        return (self._ask(self.want),) if self.may_report else ()

    def expire(self, units: int) -> None:
        """Units that were spent come back. No message: they stay in the room of this site until it is recalled."""
        self.spent -= units
        self._repay(units)

    @property
    def may_report(self) -> bool:
        """Whether the coordinator has refused requests because of units that came back since."""
        return self.exhausted_from is not None and self.used < self._reported

    def overdraw(self, n: int) -> None:
        """Make room for `n` units that were not granted. The next `Ask` reports it."""
        missing = 0 if self.closed else max(0, n - self.room)
        self.limit += missing
        self.overdraft += missing

    def set_aside(self, maximum: int) -> int:
        """Count up to `maximum` units as spent, for requests of one unit that the owner admits by itself.

        The owner calls `put_back` with the units that it has not admitted before it calls anything else. The units at
        which the site asks early are not set aside.
        """
        kept = self._early_below if not self.want and self.exhausted_from is None else 0
        units = max(0, min(self.room - kept, maximum))
        self.spent += units
        return units

    def put_back(self, units: int) -> None:
        self.spent -= units

    def prefetch(self) -> tuple[Ask, ...]:
        """Ask for a first share before there is a request, as for a period that begins soon."""
        return self._ask_for(1).messages if self.room == 0 else ()

    def withdraw(self) -> None:
        """No request waits any longer."""
        self.want = 0

    def close(self, holds_end: bool = False) -> int:
        """The units to hand in when the site leaves. It admits nothing afterwards.

        Its holds become spent, unless they end with the site.
        """
        self.closed = True
        self.spent, self.held, self.want = self.spent if holds_end else self.used, 0, 0
        self.limit, self.exhausted_from = self.spent, 1
        return self.spent

    # Messages

    def receive(self, message: DownMessage) -> tuple[Ask, ...]:
        if message.budget != self.budget:
            raise ProtocolError(f"a message for budget {message.budget} reached a site of {self.budget}")
        if message.round < self.round or self.closed:
            return ()
        new_round, self.round = message.round > self.round, message.round
        if isinstance(message, Grant):
            if message.limit > self.limit:
                self._early_below = -(-self.early_percent * (message.limit - self.limit) // 100)
                self.limit = message.limit
                self.want = 0
            return ()
        if isinstance(message, Recall):
            if new_round:
                self.limit = self.used
                self.exhausted_from = None
                self._early_below = 0
            return (self._ask(self.want),)
        self.exhausted_from = min(message.weight, self.exhausted_from or message.weight)
        if self.want >= message.weight:
            self.want = 0
        return (self._ask(self.want),) if self.used < self._reported else ()

    def resend(self) -> Ask:
        """All that the coordinator may have missed: for a new connection."""
        return self._ask(self.want)

    def _repay(self, units: int) -> None:
        repaid = min(self.overdraft, units)
        self.overdraft -= repaid
        self.limit -= repaid
        if self.want <= self.room:
            self.want = 0

    def _ask_early(self, room: int) -> Taken:
        if room == 0 or self.want or self.exhausted_from is not None:
            return ALLOWED
        self._early_below = 0
        return Taken(Verdict.ALLOWED, (self._ask(1),))

    def _ask_for(self, n: int) -> Taken:
        if self.exhausted_from is not None and n >= self.exhausted_from:
            self.refused = True
            return _EXHAUSTED
        if n <= self.want:  # asked for already
            return _WAITING
        self.want = n
        return Taken(Verdict.WAITING, (self._ask(n),))

    def _ask(self, want: int) -> Ask:
        self.seq += 1
        self._reported = self.used
        spent = 0 if self.rolling else self.spent
        return Ask(self.budget, self.round, self.seq, spent, self.used - spent, self.limit, want)
