"""When to look after each of many things: the periods of budgets, the windows of counters."""

from heapq import heappop, heappush
from math import inf

MIN_TICK_S, MAX_TICK_S = 0.1, 60.0  # between two looks at the same thing; clocks may jump
TICKS_AT_ONCE = 500  # then the session looks for frames: some milliseconds


class Ticks:
    """A heap of times and names. Of several times of a name, the earliest counts."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []  # an entry counts if `_times` has it
        self._times: dict[str, float] = {}

    @property
    def next_tick(self) -> float:
        return self._heap[0][0] if self._heap else inf

    def schedule(self, name: str, time: float) -> None:
        if time < self._times.get(name, inf):
            self._times[name] = time
            heappush(self._heap, (time, name))

    def schedule_after(self, name: str, now: float, pause: float) -> None:
        """Not too soon and not too late; never, if the pause is inf."""
        if pause < inf:
            self.schedule(name, now + min(max(pause, MIN_TICK_S), MAX_TICK_S))

    def pop(self, now: float) -> str | None:
        """A name whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            time, name = heappop(self._heap)
            if self._times.get(name) == time:
                del self._times[name]
                return name
        return None
