"""The cells of one counter in a memory-mapped file: what it has counted, and how far the talk about it has come.

    label, singles, batched, [settled, round, adopted, last, crossings], [the same], name of the counter

`singles` and `batched` only grow, and only they change when something is counted. What earlier lives have settled is
subtracted. The numbers in brackets belong to a life: the next one is written into the bracket that is not in force.

Every change is one aligned store of 8 bytes: an item of a memoryview is a copy of constant size, which compilers turn
into one instruction. So death finds each number as it was before or after, and the order of the stores does the rest.
"""

import sys
from collections.abc import Iterator
from functools import partial
from itertools import count, filterfalse
from operator import setitem
from threading import RLock
from typing import Protocol

from countless.core.messages import Report, Snapshot, UpMessage
from countless.core.site import Site
from countless.errors import InvalidParameter

MOST = 1 << 63  # no number here comes near the end of its 64 bits
NAME = 13  # words before the name
GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
_SINGLES, _BATCHED, _BRACKETS = 1, 2, (3, 8)
_SETTLED, _ROUND, _ADOPTED, _LAST, _CROSSINGS = range(5)


class Page(Protocol):
    """Whoever knows which bracket is in force."""

    page: int


class Cells:
    """The cells of one counter. Counting is for all threads; the rest is for the owner, under its lock."""

    __slots__ = ("_at", "_file", "_words")

    def __init__(self, file: Page, words: memoryview, at: int) -> None:
        self._file = file
        self._words = words
        self._at = at

    def tickets(self, lock: RLock) -> Iterator[int]:
        """Take a ticket and write it down, in one step that no other thread can come between.

        `next` of this runs from the counter through the store to the answer without a line of Python: storing an item
        returns None, which `filterfalse` takes for false, so it hands the ticket on. Where no GIL holds such a step
        together, the owner's lock does.
        """
        if not GIL:
            return GuardedTickets(self, lock)
        cell = self._at + _SINGLES
        return filterfalse(partial(setitem, self._words, cell), count(self._words[cell] + 1))

    def looks(self) -> Iterator[int]:
        """The last ticket, as often as one looks."""
        return iter(lambda: self.singles, None)

    def take(self) -> int:
        """The next ticket, for one thread at a time."""
        cell = self._at + _SINGLES
        self._words[cell] += 1
        return self._words[cell]

    def add(self, n: int) -> None:
        """`n` events at once."""
        batched = self.batched + n
        if batched >= MOST:
            raise InvalidParameter("n", n, "less: a count that is kept in a state_dir ends at 2^63")
        self._words[self._at + _BATCHED] = batched

    @property
    def singles(self) -> int:
        """Events that came one by one: the last ticket."""
        return self._words[self._at + _SINGLES]

    @property
    def batched(self) -> int:
        """Events that came many at a time."""
        return self._words[self._at + _BATCHED]

    @property
    def counted(self) -> int:
        """All that was ever counted here."""
        return self.singles + self.batched

    @property
    def count(self) -> int:
        """What this life has counted."""
        return self.counted - self._words[self._bracket + _SETTLED]

    def resume(self, counter: str) -> tuple[UpMessage, ...]:
        """What this life may have said without being heard, as its site would say it again (`Site.resume`)."""
        _, number, adopted, last, crossings = self._words[self._bracket : self._bracket + 5]
        return Snapshot(counter, number, adopted), Report(counter, number, last, crossings)

    def hello(self, counter: str) -> Snapshot:
        """The exact count, and the round it was reached in."""
        return Snapshot(counter, self._words[self._bracket + _ROUND], self.count)

    def note(self, site: Site) -> None:
        """How far the conversation has come; before anybody hears of it.

        Crossings of one round must never be found beside the number of another, nor without the count they led to.
        """
        adopted, last = site.resend()
        words, at = self._words, self._bracket
        if words[at + _ROUND] != site.round:
            words[at + _CROSSINGS] = 0
        words[at + _ADOPTED], words[at + _LAST] = adopted.count, last.count
        words[at + _ROUND] = min(site.round, MOST)
        words[at + _CROSSINGS] = site.crossings

    def settle(self, settled: int) -> None:
        """So much of all that was ever counted is not this life's; and it has not said a word."""
        words, at = self._words, self._bracket
        words[at + _CROSSINGS] = words[at + _LAST] = words[at + _ADOPTED] = 0
        words[at + _SETTLED] = settled
        words[at + _ROUND] = 0

    @property
    def _bracket(self) -> int:
        return self._at + _BRACKETS[self._file.page]


class GuardedTickets:
    """Tickets that threads take one after the other."""

    def __init__(self, cells: Cells, lock: RLock) -> None:
        self._cells = cells
        self._lock = lock

    def __iter__(self) -> "GuardedTickets":
        return self

    def __next__(self) -> int:
        with self._lock:
            return self._cells.take()
