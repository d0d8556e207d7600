"""A schedule of visits to many things: the periods of budgets, the windows of counters."""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from threading import RLock
from typing import Generic, TypeVar

MIN_TICK_S, MAX_TICK_S = 0.1, 60.0  # between two looks at the same thing; clocks may jump
TICKS_AT_ONCE = 500  # then the session looks for frames: some milliseconds

T = TypeVar("T")


class Ticks(Generic[T]):
    """A heap of times and things that can be ordered. Of several times of one, the earliest counts.

    `look_after` returns the seconds to the next look; inf: none is needed.
    """

    def __init__(self, lock: RLock, look_after: Callable[[T, float], float]) -> None:
        self._lock = lock
        self._look_after = look_after
        self._heap: list[tuple[float, T]] = []  # an entry counts if `_times` has it
        self._times: dict[T, float] = {}

    @property
    def next_tick(self) -> float:
        return self._heap[0][0] if self._heap else inf

    def schedule(self, what: T, time: float) -> None:
        if time < self._times.get(what, inf):
            self._times[what] = time
            heappush(self._heap, (time, what))

    def tick(self, now: float) -> None:
        """Look after those whose time has come. The lock is released after each, for threads of the program."""
        for _ in range(TICKS_AT_ONCE):
            with self._lock:
                what = self._pop(now)
                if what is None:
                    return
                pause = self._look_after(what, now)
                if pause < inf:  # not too soon and not too late
                    self.schedule(what, now + min(max(pause, MIN_TICK_S), MAX_TICK_S))

    def _pop(self, now: float) -> T | None:
        """One whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            time, what = heappop(self._heap)
            if self._times.get(what) == time:
                del self._times[what]
                return what
        return None
