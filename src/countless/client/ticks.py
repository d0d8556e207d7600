"""A schedule of visits to many things: the periods of budgets, the windows of counters."""

from heapq import heappop, heappush
from math import inf
from typing import Generic, TypeVar

MIN_TICK_S, MAX_TICK_S = 0.1, 60.0  # between two looks at the same thing; clocks may jump
TICKS_AT_ONCE = 500  # then the session looks for frames: some milliseconds

T = TypeVar("T")


class Ticks(Generic[T]):
    """A heap of times and things that can be ordered. Of several times of one, the earliest counts."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, T]] = []  # an entry counts if `_times` has it
        self._times: dict[T, float] = {}

    @property
    def next_tick(self) -> float:
        return self._heap[0][0] if self._heap else inf

    def schedule(self, what: T, time: float) -> None:
        if time < self._times.get(what, inf):
            self._times[what] = time
            heappush(self._heap, (time, what))

    def schedule_after(self, what: T, now: float, pause: float) -> None:
        """Not too soon and not too late; never, if the pause is inf."""
        if pause < inf:
            self.schedule(what, now + min(max(pause, MIN_TICK_S), MAX_TICK_S))

    def pop(self, now: float) -> T | None:
        """One whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            time, what = heappop(self._heap)
            if self._times.get(what) == time:
                del self._times[what]
                return what
        return None
