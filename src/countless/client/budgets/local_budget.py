"""Units of a budget that many threads take one by one without a lock.

Under the owner's lock, units of the site's room are set aside: the site counts them as spent, and `units` becomes an
iterator that yields once for each of them. A thread that takes one unit calls `next(units, None)`: if that returns
anything but None, the unit is admitted. Before the site does anything else (another request, a message of the
coordinator, an `Ask`), it is given back the units that the iterator has not yielded: we exhaust the iterator and count.

1. `next` is atomic under the GIL, because it is one step of C code. So an iterator yields no more often than units were
   set aside for it, to whichever threads call it.
2. Exhausting the iterator calls `next` too. So each unit goes to a thread that admits it or back to the site, never to
   both, also while other threads take units.
3. An iterator that was exhausted yields nothing more. A thread that has read `units` before, and calls `next` later,
   gets None and comes to the lock.
4. In a forked child `units` yields nothing (`fork_page.py`): what was set aside before the fork is the parent's.

So `spent` of the site is exact whenever the site uses it: an `Ask` returns no unit that was admitted. An exception of
a signal handler may lose units between 1 and 2; they count as spent. Without the GIL nothing is set aside, and every
request comes to the lock.
"""

from collections.abc import Iterator
from itertools import repeat
from operator import length_hint

from countless.client.fork_page import GIL
from countless.client.forks import present_page
from countless.core.budget.messages import Ask, Quota
from countless.core.budget.rolling import RollingSite
from countless.core.budget.rule import IN_FLIGHT, BudgetRule
from countless.core.budget.site import BudgetSite, Taken
from countless.errors import InvalidParameter

MAX_ASIDE = 1024  # giving them back costs six microseconds

NONE_ASIDE: Iterator[object] = iter(())


class LocalBudget:
    """A site of a budget, and the units set aside for `take(1)`. Everything but `units` needs the owner's lock."""

    __slots__ = ("_aside", "_first", "in_flight", "known", "refused_from", "rolling", "site", "units")

    def __init__(self, site: BudgetSite) -> None:
        self.site = site
        self.known = False  # the coordinator knows the site, although it has not asked since
        self.rolling = site if isinstance(site, RollingSite) else None
        self.in_flight = False  # units are only held, and all holds end with the process
        self.refused_from: int | None = None  # the smallest request that was unavailable, since units were granted
        self.units = NONE_ASIDE  # for any thread: one unit is admitted for each item
        self._aside = NONE_ASIDE  # the same units: what takes an item of these admits none
        self._first = site.seq

    @property
    def asked(self) -> bool:
        """True if the coordinator may know of it."""
        return self.known or self.site.seq > self._first or self.site.limit > 0

    @property
    def spent(self) -> int:
        return self.site.spent - length_hint(self._aside)

    @property
    def remaining(self) -> int:
        """The units that can be admitted without a message."""
        return self.site.room + length_hint(self._aside)

    @property
    def left(self) -> int:
        """The units of the whole budget, as far as they are known: at least 1 until it is exhausted."""
        refused_from = self.refused_from if self.site.refuse_from is None else self.site.refuse_from
        return max(self.remaining, 1 if refused_from is None else refused_from - 1)

    def refuses(self, n: int) -> bool:
        refuse_from = self.site.refuse_from
        return refuse_from is not None and n >= refuse_from

    def decides(self, n: int) -> bool:
        """True if a request of `n` units is decided without a message."""
        return n <= self.remaining or self.refuses(n)

    def follow(self, rule: BudgetRule | None) -> None:
        """None: it is not known yet."""
        if rule is not None:
            self.in_flight = rule.kind == IN_FLIGHT

    def put_back(self) -> None:
        """Set nothing aside any more: `spent` of the site is exact then."""
        self.site.put_back(len(list(self._aside)))
        self.units = self._aside = NONE_ASIDE

    def advance(self, now: float) -> None:
        """Before anything else happens to a rolling budget: units may come back. Call `put_back` first."""
        if self.rolling is not None:
            self.rolling.advance(now)

    def take(self, n: int) -> Taken:
        if self.in_flight:
            self.require_spending()
        if self._aside is not NONE_ASIDE:
            self.put_back()
        taken = self.site.take(n)
        if self.rolling is not None:
            self.rolling.record()
        if n == 1 and GIL:
            self._set_aside()
        return taken

    def require_spending(self) -> None:
        """Raise InvalidParameter if units are only held: what is taken of them would be free again at once."""
        if self.in_flight:
            name = self.site.budget.name
            message = f"budget {name!r} limits what runs at the same time: use acquire"
            raise InvalidParameter("budget", name, message=message)

    def reserve(self, n: int, queued: bool = False) -> Taken:
        self.put_back()
        return self.site.reserve(n, queued)

    def settle(self, units: int, used: int) -> None:
        self.put_back()
        self.site.settle(units, 0 if self.in_flight else used)
        if self.rolling is not None:
            self.rolling.record()

    def overdraw(self, n: int) -> None:
        """Make room for `n` units, whatever was granted."""
        self.put_back()
        self.site.overdraw(n)

    def receive(self, quota: Quota) -> None:
        self.put_back()
        site, granted = self.site, self.site.granted
        site.receive(quota)
        site.seq = max(site.seq, site.since)  # an earlier object of this budget may have asked more often
        if site.granted > granted or site.refuse_from is not None:
            self.refused_from = site.refuse_from

    # What waits

    def repeat(self) -> None:
        """Forget what waits. The owner repeats it, and calls `proceed`."""
        self.put_back()
        self.site.repeat()

    def stay(self, n: int) -> None:
        """A request over several budgets waits for another one: keep its units of this one."""
        self.site.stay(n)

    def linger(self, n: int, wants: bool) -> tuple[Ask, ...]:
        """A request has ended before it was decided: keep its units if no other one waits, or still want them."""
        self.put_back()
        if n > self.site.room:
            return self.site.take(n).messages if wants else ()
        if not self.site.want:
            self.site.stay(n)
        return ()

    def proceed(self) -> tuple[Ask, ...]:
        self.put_back()
        return self.site.proceed()

    def resend(self) -> Ask:
        """Instead of `proceed`, on a new connection."""
        self.put_back()
        ask = self.site.resend()
        self.site.proceed()
        return ask

    def prefetch(self) -> tuple[Ask, ...]:
        return self.site.prefetch()

    # The end

    def close(self) -> int:
        """Admit nothing more; the units to hand in."""
        self.put_back()
        return self.site.close(holds_end=self.in_flight)

    @property
    def to_hand_in(self) -> int:
        """The units spent in all, if it is closed."""
        return self.site.spent if self.rolling is None else self.rolling.handed_over + self.rolling.spent

    def discard(self) -> None:
        """Forget what was spent: it is handed in, or the coordinator knows nothing of it."""

    def abandon(self) -> None:
        """In a forked child: admit nothing more. What was granted belongs to the parent."""
        self.close()

    def _set_aside(self) -> None:
        units = self.site.set_aside(MAX_ASIDE)
        if units:
            self._aside = repeat(True, units)
            self.units = present_page().items(self._aside)
