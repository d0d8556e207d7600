"""A count that many threads increment without a lock, and that knows at which count a report is due.

An event takes the next number of `itertools.count`. That is atomic: under the GIL because it is one step of C, on
free-threaded builds because CPython makes it so since 3.13 (gh-117657). No number is given twice, so no event is lost.
Everything else (adding many events, reading the count, applying a message of the coordinator) runs under the owner's
lock. Reading the count takes a number too, which stands for no event and is subtracted again:

1. `threshold` is set below every number, so that every event from now on comes to the lock and waits;
2. the reader takes a number: all events before it are in the count, and all events after it will compare their number
   with a `threshold` that was written in step 1 or later;
3. the count is used, and `threshold` is set to the number at which the trigger wants the next report. If that number
   has been taken already, the thread that took it has not come to the lock yet and may not have compared it either:
   `threshold` then stays below every number, so that this thread comes to the lock.

In a forked child the numbers end before the first one is taken (`fork_page.py`), so every event of the child comes to
the lock until `after_fork`. An event that finds no number has none: it is counted under the lock, as a batch of one.
"""

from collections.abc import Callable, Iterator
from itertools import count
from threading import RLock

from countless.core.messages import DownMessage, SiteId, Snapshot, UpMessage
from countless.core.site import MAX_INCREMENT, Site, require_increment
from countless.errors import InvalidParameter

Deliver = Callable[[Site, tuple[UpMessage, ...]], None]

ALWAYS = -1  # a threshold that every number reaches
NO_NUMBER = 1 << 64  # the numbers have ended; it reaches every threshold
_ONE = 1  # CPython has one object for it, which True and 1.0 are not: comparing that makes add() 13 % faster
_IDLE, _UPDATING, _INTERRUPTED = range(3)  # whether the site's state is being changed, and an `add` came in between


def _from_one() -> Iterator[int]:
    return count(1)


class LocalCounter:
    """The thread-safe side of one site of one counter: a program calls `add`."""

    __slots__ = (
        "_deliver",
        "_earlier",
        "_lock",
        "_numbers",
        "_offset",
        "_site",
        "_state",
        "announced",
        "sequence",
        "threshold",
    )

    def __init__(
        self, site: Site, lock: RLock, deliver: Deliver, numbers: Callable[[], Iterator[int]] = _from_one
    ) -> None:
        """`numbers`: from 1 on; in a forked child they end."""
        self._site = site
        self._lock = lock
        self._deliver: Deliver | None = deliver  # called under the lock with the messages that are due
        self._offset = site.count  # events that took no number, less the numbers that were no event
        self._earlier = 0  # events that earlier incarnations of this process have delivered
        self.announced = False  # the coordinator may know this counter although it has counted nothing
        self._numbers = numbers
        self.sequence = numbers()
        self.threshold = ALWAYS
        self._state = _IDLE
        self._set_threshold(site.count)

    def __repr__(self) -> str:
        return f"<LocalCounter of site {self._site.site_id.site!r}: {self.count:,} counted, {self._site.trigger!r}>"

    def add(self, n: int = 1) -> None:
        if n is _ONE:
            number = next(self.sequence, NO_NUMBER)
            if number < self.threshold:
                return
        else:
            number = 0
            if type(n) is not int or not 0 <= n <= MAX_INCREMENT:  # inline: calling it always makes add(5) 27 % slower
                require_increment(n)
        if not self.add_with_lock(n, number):
            allowed = "a counter of a client that has not been closed, or of a site that has not been removed"
            raise InvalidParameter("counter", self.name, allowed)

    def add_with_lock(self, n: int, number: int) -> bool:
        """Count `n` events, or the one that has taken this number of `sequence`; 0: none has.

        False: the counter was closed, and these events are not in its final count.
        """
        if number is NO_NUMBER:
            number = 0
        with self._lock:
            deliver = self._deliver
            if deliver is None:
                return 0 < number <= self._site.count - self._offset
            now, site = self._read_after(0 if number else n), self._site
            if self._state != _IDLE:  # we are a signal handler or a finaliser: the call that we interrupted reports
                self._state = _INTERRUPTED
            elif now < site.next_at:
                self.threshold = site.next_at - self._offset
            elif messages := self._advance(now):
                deliver(site, messages)
            return True

    inc = add

    @property
    def count(self) -> int:
        """The number of events this incarnation of the site has counted."""
        with self._lock:
            if self._deliver is None:
                return self._site.count
            now = self._read_after(0)
            self._set_threshold(now)
        return now

    @property
    def counted(self) -> int:
        """The number of events this process has counted, including those delivered by earlier incarnations."""
        with self._lock:
            return self._earlier + self.count

    @property
    def name(self) -> str:
        return self._site.counter

    @property
    def open(self) -> bool:
        return self._deliver is not None

    def debug_state(self) -> Site:
        """The site, for tests and benches."""
        return self._site

    # For the owner, which holds the lock

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        """Apply a message of the coordinator and return the site's reply."""
        self._state = _UPDATING
        try:
            self._site.count = self._read_after(0)
            return self._site.receive(message)
        finally:
            if self._state == _UPDATING:  # otherwise the next event reports what an interrupting `add` has counted
                self._set_threshold(self._site.count)
            self._state = _IDLE

    def rejoin_messages(self) -> tuple[Snapshot, tuple[UpMessage, ...]]:
        """The exact count, and every message that may have been lost with the last connection."""
        if self._deliver is not None:
            self._update_site()
            self._set_threshold(self._site.count)
        return self._site.snapshot(), self._site.resend()

    def reset(self, site_id: SiteId, delivered: int | None) -> None:
        """Continue as a new incarnation with the events beyond the first `delivered`; None: with none of them."""
        now = self._site.count if self._deliver is None else self._read_after(0)
        rest = 0 if delivered is None else max(0, now - delivered)
        self._offset -= now - rest
        self._earlier += now - rest
        self._site = Site(self._site.counter, site_id, self._site.rng, count=rest)
        self.announced = False
        if self._deliver is not None:
            self._set_threshold(rest)

    def after_fork(self, site_id: SiteId) -> None:
        """In a child, which has counted nothing. The thread that was in here belongs to the parent."""
        self._begin()
        self._state = _IDLE
        self.reset(site_id, None)
        self._earlier = 0

    def _begin(self) -> None:
        """Take new numbers, from 1 on."""
        self.sequence, self._offset = self._numbers(), 0

    def give_up(self) -> None:
        """In a child, where the counter stays closed: a later `add` raises."""
        self._deliver = None

    def close(self) -> Snapshot:
        """Return the final count. An event is in it, or its `add` raises."""
        self._update_site()
        self._deliver = None
        return self._site.snapshot()

    def _advance(self, now: int) -> tuple[UpMessage, ...]:
        """Bring the site to the count; the reports that are due. An `add` that comes in between is included."""
        site = self._site
        self._state = _UPDATING
        try:
            messages = site.advance(max(site.count, now))
            while self._state == _INTERRUPTED:
                self._state = _UPDATING
                messages += site.advance(self._read_after(0))
            self.threshold = site.next_at - self._offset
        finally:
            self._state = _IDLE
        return messages

    def _update_site(self) -> None:
        now = self._read_after(0)
        if now > self._site.count:  # an `add` that came in between may have brought the site further
            self._site.count = now

    def _read_after(self, n: int) -> int:
        """Add `n` events and return the count. Every event from now on comes to the lock, until `_set_threshold`."""
        self.threshold = ALWAYS
        offset = self._offset = self._offset + n - 1
        number = next(self.sequence)
        if offset == self._offset:
            return number + offset
        return self._read_after(0)  # a signal handler read the count, or added, while we took our number

    def _set_threshold(self, now: int) -> None:
        if now < self._site.next_at:
            self.threshold = self._site.next_at - self._offset
