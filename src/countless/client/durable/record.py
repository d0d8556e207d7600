"""One counter in a memory-mapped file: how much it has counted, and how far its protocol with the coordinator has come.

    name word, unit total, batch total, slot 0, slot 1, name of the counter
    slot: base, round, adopted, last, crossings

Only the two totals change when something is counted, and they only grow. A slot belongs to an incarnation: `base` is
what earlier incarnations have delivered, so the count of an incarnation is the sum of the totals minus `base`. The next
incarnation is prepared in the slot that is not active.

Every change is one aligned store of 8 bytes: an item of a memoryview is a copy of constant size, which compilers turn
into one instruction. So a process that is killed leaves each number as it was before or after the store, and the order
of the stores keeps the numbers consistent with each other.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count, filterfalse
from operator import setitem
from threading import RLock
from typing import Protocol

from countless.client.fork_page import GIL
from countless.client.forks import present_page
from countless.core.messages import Report, Snapshot, UpMessage
from countless.core.site import Site
from countless.errors import InvalidParameter

MAX_COUNT = 1 << 63  # every number in the file fits into 64 bits with room to spare
NAME_OFFSET = 13  # words before the name
_UNIT_TOTAL, _BATCH_TOTAL, _SLOTS = 1, 2, (3, 8)
_BASE, _ROUND, _ADOPTED, _LAST, _CROSSINGS = range(5)


class ActiveSlot(Protocol):
    slot: int  # 0 or 1, the same for all records of a file


class CounterRecord:
    """The numbers of one counter. Any thread may take numbers of `sequence`; the rest is under the owner's lock."""

    __slots__ = ("_closed", "_file", "at", "words")

    def __init__(self, file: ActiveSlot, words: memoryview, at: int) -> None:
        self._file = file
        self.words = words
        self.at = at  # the index of its first word
        self._closed = False

    def begin(self) -> None:
        """Count from 0, in a record that was used before: totals only grow, so that begins at what they are."""
        for slot in _SLOTS:
            self._rebase(self.at + slot, self.lifetime_total)

    def clear(self) -> None:
        """As in a new record. No `sequence` of it may exist, which would go on with the old numbers."""
        for word in range(_UNIT_TOTAL, NAME_OFFSET):
            self.words[self.at + word] = 0

    def close(self) -> None:
        """Nothing is counted any more; the words may be those of another record soon."""
        self._closed = True

    def sequence(self, lock: RLock) -> Iterator[int]:
        """Numbers of events that are counted one by one. Each is in the file before `next` returns it.

        They end after some thousands, and in a forked child before the first one is stored: the file is the parent's.

        `next` runs through count, store and return without a step of Python, so under the GIL no other thread comes in
        between: storing an item returns None, which is false, so `filterfalse` passes the number on. Without the GIL
        the owner's lock keeps them together, which makes `add()` 3.5 times as slow.
        """
        if not GIL:
            return LockedSequence(self, lock)
        cell = self.at + _UNIT_TOTAL
        numbers = present_page().items(count(self.words[cell] + 1))
        return filterfalse(partial(setitem, self.words, cell), numbers)

    def increment(self) -> int:
        if self._closed:
            return MAX_COUNT
        cell = self.at + _UNIT_TOTAL
        self.words[cell] += 1
        return self.words[cell]

    def add(self, n: int) -> None:
        total = self.batch_total + n
        if total >= MAX_COUNT:
            raise InvalidParameter("n", n, "less: a count that is kept in a state_dir ends at 2^63")
        self.words[self.at + _BATCH_TOTAL] = total

    @property
    def unit_total(self) -> int:
        """Events that were counted one by one, in all incarnations: the last number of `sequence`."""
        return self.words[self.at + _UNIT_TOTAL]

    @property
    def batch_total(self) -> int:
        """Events that were counted by `add`, in all incarnations."""
        return self.words[self.at + _BATCH_TOTAL]

    @property
    def lifetime_total(self) -> int:
        return self.unit_total + self.batch_total

    @property
    def base(self) -> int:
        return self.words[self._active + _BASE]

    @property
    def count(self) -> int:
        return self.lifetime_total - self.base

    def snapshot(self, counter: str) -> Snapshot:
        """As `Site.snapshot`, from the file."""
        return Snapshot(counter, self.words[self._active + _ROUND], self.count)

    def resend(self, counter: str) -> tuple[UpMessage, ...]:
        """As `Site.resend`, from the file."""
        _, number, adopted, last, crossings = self.words[self._active : self._active + 5]
        return Snapshot(counter, number, adopted), Report(counter, number, last, crossings)

    def save_state(self, site: Site) -> None:
        """Save how far the protocol has come, before any of it is sent.

        A reader must never find the crossings of one round beside the number of another, nor without the count at which
        they were reached.
        """
        adopted, last = site.resend()
        words, at = self.words, self._active
        if words[at + _ROUND] != site.round:
            words[at + _CROSSINGS] = 0
        words[at + _ADOPTED], words[at + _LAST] = adopted.count, last.count
        words[at + _ROUND] = min(site.round, MAX_COUNT)
        words[at + _CROSSINGS] = site.crossings

    def rebase(self, base: int) -> None:
        """Begin an incarnation that has sent nothing yet and does not count the first `base` events."""
        self._rebase(self._active, base)

    def copy_slot(self) -> None:
        """To the slot that is not active, for a generation in which this record stays as it is."""
        source, target = self._active, self.at + _SLOTS[self._file.slot ^ 1]
        for word in range(_CROSSINGS + 1):
            self.words[target + word] = self.words[source + word]

    def _rebase(self, at: int, base: int) -> None:
        words = self.words
        words[at + _CROSSINGS] = words[at + _LAST] = words[at + _ADOPTED] = 0
        words[at + _BASE] = base
        words[at + _ROUND] = 0

    @property
    def _active(self) -> int:
        return self.at + _SLOTS[self._file.slot]


class LockedSequence:
    """`CounterRecord.sequence` for an interpreter without a GIL."""

    def __init__(self, record: CounterRecord, lock: RLock) -> None:
        self._record = record
        self._lock = lock

    def __iter__(self) -> "LockedSequence":
        return self

    def __next__(self) -> int:
        with self._lock:
            return self._record.increment()
