"""One budget in a memory-mapped file: how much an incarnation has spent and holds, in one period.

    name word, incarnation, period, boot, unit total, batch total, refused from, ends at, name of the budget

Units that are taken one by one are in the unit total, all others in the batch total; their sum, modulo 2^64, is what is
handed in for the incarnation. Of a rolling budget they have what was handed over, and not what came back here. A record
with incarnation 0 is free: it can be used again, also for a budget whose name takes as many words.

`refused from` is the smallest request that was refused, 0 without one, and `ends at` when the period ends, in seconds
since 1970: the next process refuses such requests until it has reached the coordinator.

As in `record.py` every change is one aligned store of 8 bytes, and the incarnation is stored last. A request is in the
file before it is admitted, and units that come back leave the file before the coordinator is told. So whenever the
process is killed, the file has all that was admitted, and no more than the coordinator has granted.

The file survives the end of the process, not of the machine: after a power cut it may be older than what was admitted.
So may a copy of the file, if the process that writes to it continues. `boot` says in which run of the machine, and to
which file, it was written. In any other nothing is handed in, and the coordinator counts all that was granted as spent.
"""

import fcntl
import os
from collections.abc import Iterator
from functools import cache, partial
from hashlib import blake2b
from itertools import filterfalse
from operator import setitem
from pathlib import Path

from countless.client.budgets.requests import PeriodRefusal
from countless.core.budget.messages import BudgetId

NAME_OFFSET = 8  # words before the name
UNKNOWN_BOOT = 0  # no two runs of the machine can be told apart: nothing is handed in
_WORD = (1 << 64) - 1
_FS_IOC_GETVERSION = 0x80087601
_INCARNATION, _PERIOD, _BOOT, _UNIT_TOTAL, _BATCH_TOTAL, _REFUSED_FROM, _ENDS_AT = range(1, 8)


@cache
def boot_id() -> str:
    """Empty: it is not known."""
    return read_boot_id(Path("/proc/sys/kernel/random/boot_id"))


def read_boot_id(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def boot_word(descriptor: int) -> int:
    """A number of the current run of the machine, and of this file in it."""
    if not boot_id():
        return UNKNOWN_BOOT
    status = os.fstat(descriptor)
    text = f"{boot_id()} {status.st_dev} {status.st_ino} {_generation(descriptor)}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _generation(descriptor: int) -> int:
    """The number of earlier uses of the inode (ext4, XFS, Btrfs): a new file may have that of a deleted one."""
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, _FS_IOC_GETVERSION, bytes(8)), "little")
    except OSError:
        return 0


class BudgetRecord:
    """The numbers of one budget. Any thread may take units of `sequence`; the rest is under the owner's lock."""

    __slots__ = ("at", "name", "words")

    def __init__(self, name: str, words: memoryview, at: int) -> None:
        self.name = name
        self.words = words
        self.at = at  # the index of its first word

    @property
    def incarnation(self) -> int:
        """0: the record is free."""
        return self.words[self.at + _INCARNATION]

    @property
    def budget(self) -> BudgetId:
        return BudgetId(self.name, self.words[self.at + _PERIOD])

    @property
    def boot(self) -> int:
        return self.words[self.at + _BOOT]

    @property
    def unit_total(self) -> int:
        """Units that were taken one by one: the last number of `sequence`."""
        return self.words[self.at + _UNIT_TOTAL]

    @property
    def used(self) -> int:
        """The units spent and held."""
        return (self.unit_total + self.words[self.at + _BATCH_TOTAL]) & _WORD

    def begin(self, period: int, incarnation: int, boot: int) -> None:
        words, at = self.words, self.at
        words[at + _INCARNATION] = 0
        words[at + _PERIOD], words[at + _BOOT] = period, boot
        words[at + _UNIT_TOTAL] = words[at + _BATCH_TOTAL] = words[at + _REFUSED_FROM] = 0
        words[at + _INCARNATION] = incarnation

    def sequence(self, numbers: Iterator[int]) -> Iterator[int]:
        """Pass the numbers on. Each is in the file before `next` returns it.

        `next` runs through `numbers`, store and return without a step of Python, so under the GIL no other thread comes
        in between: storing an item returns None, which is false, so `filterfalse` passes the number on.
        """
        return filterfalse(partial(setitem, self.words, self.at + _UNIT_TOTAL), numbers)

    def save(self, batch_total: int) -> None:
        self.words[self.at + _BATCH_TOTAL] = batch_total & _WORD

    @property
    def refusal(self) -> PeriodRefusal | None:
        refusal = PeriodRefusal(self.words[self.at + _REFUSED_FROM], self.words[self.at + _ENDS_AT])
        return refusal if self.incarnation and refusal.refused_from else None

    def save_refusal(self, refusal: PeriodRefusal | None) -> None:
        words, at = self.words, self.at
        words[at + _REFUSED_FROM] = 0
        if refusal is not None:
            words[at + _ENDS_AT] = refusal.ends_at
            words[at + _REFUSED_FROM] = refusal.refused_from

    def free(self) -> None:
        """Free the record: the spending is handed in, or nothing was ever granted."""
        self.words[self.at + _INCARNATION] = 0
