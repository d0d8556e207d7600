"""A page of memory by which a process notices that it was forked, even if no hook ran: uWSGI forks in C.

The page is full of ones. In a child the kernel replaces it by zeros (MADV_WIPEONFORK, Linux 4.14), so whatever reads it
there knows that it was inherited. Reading it is a step of C without a system call: numbers and units that a process
takes without a lock come through iterators that read the page for each item, and end in a child.

Elsewhere, and without a GIL, the pid is compared instead, where a lock is taken: `inherited` is right on every system,
but the iterators do not end. (design/client.md, Fork.)
"""

import mmap
import os
import sys
from collections.abc import Callable, Iterator
from itertools import chain, compress, repeat, takewhile
from operator import itemgetter
from typing import TypeVar

GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()  # one step of C code is atomic


MAX_ITEMS = mmap.PAGESIZE  # of `items`, at least 1,024
_MADV_WIPEONFORK = 18  # of Linux; the module `mmap` has no name for it before Python 3.13
T = TypeVar("T")
_FIRST: Callable[[object], object] = itemgetter(0)  # type: ignore[assignment]  # only pages are passed


class ForkPage:
    """Belongs to the process that made it."""

    __slots__ = ("_ones", "_pid")

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._ones = _wiped_at_fork()

    @property
    def inherited(self) -> bool:
        """True if this process is a fork of the one that made it."""
        return os.getpid() != self._pid if self._ones is None else not self._ones[0]

    def items(self, items: Iterator[T]) -> Iterator[T]:
        """The first `MAX_ITEMS` of these. In a forked child: none."""
        return items if self._ones is None else compress(items, iter(self._ones))

    def endless(self, items: Iterator[T]) -> Iterator[T]:
        """All of these. In a forked child: none.

        Once in a while it makes an object, so in CPython 3.11 the garbage collector may call finalisers between two of
        its steps.
        """
        if self._ones is None:
            return items
        return compress(items, chain.from_iterable(takewhile(_FIRST, repeat(self._ones))))


def _wiped_at_fork() -> memoryview | None:
    """A page of ones; None if there is no such memory."""
    if not GIL or not hasattr(mmap, "MAP_PRIVATE"):
        return None
    page = mmap.mmap(-1, MAX_ITEMS, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        page.madvise(_MADV_WIPEONFORK)
    except (AttributeError, OSError, ValueError):
        page.close()
        return None
    page.write(b"\1" * MAX_ITEMS)
    return memoryview(page)
