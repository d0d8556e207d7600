"""A meter: a count that many threads raise without a lock, and that knows when it is time to speak.

How it is safe. One event takes a ticket from `itertools.count`, whose `next` is atomic: under the GIL because it is one
step of C, on free-threaded builds because CPython makes it so since 3.13 (gh-117657). No ticket is given twice, so no
event is lost. Everything else - a batch, reading the count, a word from the coordinator - happens under the lock of the
meter's owner and costs one blank ticket, which stands for no event:

1. `_due` is set below every ticket, so that whoever takes one from now on comes to the lock and waits;
2. the blank ticket is taken: every event before it is in the count, and every event after it will compare its own
   ticket with a `_due` that was written in step 1 or later;
3. the count is used, and `_due` is set to the ticket at which the pace wants to speak next. If that ticket was taken
   already, its owner has not come to the lock yet and may not have looked at `_due` either: so that it comes, `_due`
   stays below every ticket until then.
"""

from collections.abc import Callable, Iterator
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING

from countless.core.messages import DownMessage, Snapshot, UpMessage
from countless.core.site import MAX_INCREMENT, Site, require_increment
from countless.errors import InvalidParameter

if TYPE_CHECKING:
    Deliver = Callable[[Site, tuple[UpMessage, ...]], None]

ONE = 1  # CPython keeps small integers: `n is ONE` is the fastest test, and missing it is slower, never wrong
AT_ONCE = -1


class LocalCounter:
    """The thread-safe face of one site of one counter. `add` is all that a program needs."""

    __slots__ = ("_blank", "_deliver", "_due", "_lock", "_looks", "_site", "_surplus", "_tickets")

    def __init__(self, site: Site, lock: "RLock", deliver: "Deliver") -> None:
        self._site = site
        self._lock = lock
        self._deliver: Deliver | None = deliver  # called under the lock with what the site wants to say
        self._tickets: Iterator[int] = count(1)
        self._looks: Iterator[int] = self._tickets
        self._blank = 1  # what a look takes from the tickets
        self._surplus = site.count  # events that took no ticket, less the tickets that were no event
        self._due = AT_ONCE
        self._arm(site.count)

    def __repr__(self) -> str:
        return f"<LocalCounter of site {self._site.site_id.site!r}: {self.count:,} counted, {self._site.trigger!r}>"

    def add(self, n: int = ONE) -> None:
        """`n` more events have happened here."""
        if n is ONE:
            if next(self._tickets) < self._due:
                return
            n = 0  # it is counted; now see what is due
        elif type(n) is not int or not 0 <= n <= MAX_INCREMENT:
            require_increment(n)
        lock = self._lock
        try:  # quicker than `with lock`, and as safe from interrupts
            lock.acquire()
            deliver, site = self._deliver, self._site
            if deliver is None:
                raise InvalidParameter("site", site.site_id.site, "a site that has not been removed")
            self._due = AT_ONCE  # `_observe`, without the call
            self._surplus = surplus = self._surplus + n - self._blank
            messages = site.advance(next(self._looks) + surplus)
            self._due = site.next_at - self._surplus  # `_arm`: what is next is always beyond the count
            if messages:
                deliver(site, messages)
        finally:
            try:  # noqa: SIM105 - a context manager is what this is not
                lock.release()
            except RuntimeError:  # it was interrupted while it waited for the lock
                pass

    inc = add

    @property
    def count(self) -> int:
        """How many events this site has counted in its life."""
        with self._lock:
            if self._deliver is None:
                return self._site.count
            now = self._observe()
            self._arm(now)
        return now

    @property
    def open(self) -> bool:
        """Whether it still counts."""
        return self._deliver is not None

    # For the owner, under the lock

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        """The coordinator spoke; what the site answers."""
        site = self._site
        self._due = AT_ONCE  # `_observe`, without the call
        self._surplus = surplus = self._surplus - self._blank
        site.count = now = next(self._looks) + surplus
        try:
            return site.receive(message)
        finally:
            if now < site.next_at:  # `_arm`, without the call
                self._due = site.next_at - self._surplus

    def hello(self) -> tuple[Snapshot, tuple[UpMessage, ...]]:
        """What to say on a new connection: the exact count, and all that may have been lost with the last one."""
        if self._deliver is not None:
            self._site.count = now = self._observe()
            self._arm(now)
        return self._site.snapshot(), self._site.resend()

    def reborn(self, site_with: "Callable[[int], Site]", settled: int | None) -> None:
        """Another life, which begins with what the earlier one counted beyond `settled`; None: with nothing."""
        now = self._site.count if self._deliver is None else self._observe()
        rest = 0 if settled is None else max(0, now - settled)
        self._surplus -= now - rest
        self._site = site_with(rest)
        self._arm(rest)

    def close(self) -> Snapshot:
        """The site's last words; whoever adds from now on is told that it is gone."""
        self._site.count = self._observe()
        self._deliver = None
        return self._site.snapshot()

    def _observe(self) -> int:
        """The count as it is now."""
        self._due = AT_ONCE
        self._surplus = surplus = self._surplus - self._blank
        return next(self._looks) + surplus

    def _arm(self, now: int) -> None:
        if now < self._site.next_at:
            self._due = self._site.next_at - self._surplus
