"""The holds of a program that may expire: their units count as spent then, because they may have been used.

A hold whose time is over has expired, whether the client has looked at it since or not. Time is the client's monotonic
clock.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from countless.errors import InvalidParameter

HOLD_S = 600.0  # the time that a request to a language model gets from most libraries
MAX_ENDED = 64  # holds that have ended and are kept, beyond as many as are open

Settle = Callable[[int, int], None]  # the units of a hold, and how many were used


def require_expires_in(expires_in: object) -> None:
    """Raise InvalidParameter unless it is a number of seconds above 0, or None."""
    if expires_in is None:
        return
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float) or not expires_in > 0:
        raise InvalidParameter("expires_in", expires_in, "a number of seconds above 0; inf never expires")


class OpenHold:
    """A hold that the program has not settled yet."""

    __slots__ = ("_may_end", "ended", "settle", "units")

    def __init__(self, units: int, settle: Settle) -> None:
        self.units = units
        self.settle = settle
        self.ended = False
        self._may_end = iter((True,))

    def end(self) -> bool:
        """True for the first caller, even if a signal handler comes in between."""
        self.ended = True
        return next(self._may_end, False)


class Expiries:
    """The times at which holds expire. Everything is called with the owner's lock."""

    __slots__ = ("_ended", "_heap", "_order", "_watched_from")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, OpenHold]] = []
        self._order = count()
        self._ended = 0  # holds in the heap that were settled
        self._watched_from = inf  # the owner looks for holds that are due at that time at the latest

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, hold: OpenHold, at: float) -> bool:
        """True if it expires before the owner looks for holds that are due."""
        heappush(self._heap, (at, next(self._order), hold))
        if at >= self._watched_from:
            return False
        self._watched_from = at
        return True

    def settled(self) -> None:
        """One of the holds has ended before its time."""
        self._ended += 1
        if self._ended > len(self._heap) // 2 + MAX_ENDED:
            self._heap = [each for each in self._heap if not each[2].ended]
            heapify(self._heap)
            self._ended = 0

    def next_at(self) -> float:
        """The time at which the next hold expires: the owner promises to look then."""
        while self._heap and self._heap[0][2].ended:
            heappop(self._heap)
            self._ended = max(0, self._ended - 1)
        self._watched_from = self._heap[0][0] if self._heap else inf
        return self._watched_from

    def take_due(self, now: float) -> OpenHold | None:
        """One that has expired and was not settled."""
        while self._heap and self._heap[0][0] <= now:
            hold = heappop(self._heap)[2]
            if hold.end():
                return hold
            self._ended = max(0, self._ended - 1)
        return None

    def clear(self) -> None:
        self._heap.clear()
        self._ended = 0
