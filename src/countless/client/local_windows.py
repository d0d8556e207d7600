"""A counter with windows in one process: each event is counted in the window that the clock shows.

Every window is a local counter of its own, named like `requests@hour:490123`. An event without a lock is three steps:
compare the clock with the bounds of the present window, take the next number of its counter, compare that with the
threshold. Meanwhile another thread may finish the window. Then the number is in its final count, or the event is
counted in the present window instead: `LocalCounter.add_with_lock` knows which.
"""

from collections.abc import Callable, Iterable
from math import inf
from threading import RLock
from zlib import crc32

from countless.client.local_counter import NO_NUMBER, LocalCounter
from countless.core.periods.site import SitePeriods
from countless.core.site import MAX_INCREMENT, require_increment
from countless.errors import InvalidParameter
from countless.wire.keys import Key, parse_calendar

_ONE = 1  # CPython has one object for it, which True and 1.0 are not


class LocalWindows:
    """The windows of one series, and of none of its labels. A program calls `add`; the rest is for the owner."""

    __slots__ = (
        "_calendar",
        "_clock",
        "_closed",
        "_lock",
        "_new",
        "_present",
        "_remove",
        "_windows",
        "key",
    )

    def __init__(
        self,
        key: Key,
        spread: float,
        lock: RLock,
        clock: Callable[[], float],
        new: Callable[[Key], LocalCounter],
        remove: Callable[[Key], None],
    ) -> None:
        self.key = key  # of all windows together
        self._calendar = parse_calendar(key.calendar)
        self._lock = lock
        self._clock = clock
        self._new = new
        self._remove = remove  # its count is delivered
        self._closed = False
        self._present: tuple[float, float, LocalCounter | None]
        self.reset(spread)

    def add(self, n: int = 1) -> None:
        starts_at, ends_at, local = self._present  # one object, so that they belong to each other
        if n is _ONE and starts_at <= self._clock() < ends_at and local is not None:
            number = next(local.sequence, NO_NUMBER)  # inline: calling `local.add` makes this a fifth slower
            if number < local.threshold or local.add_with_lock(1, number):
                return
        elif type(n) is not int or not 0 <= n <= MAX_INCREMENT:
            require_increment(n)
        with self._lock:
            if not self._closed:
                local = self._windows.enter(self._clock())
                self._set_present()
                if local.add_with_lock(n, 0):
                    return
        raise InvalidParameter("counter", self.key.name, "a counter of a client that has not been closed")

    def _set_present(self) -> None:
        windows = self._windows  # nothing is called from here on, so that no signal handler enters another window
        self._present = windows.starts_at, windows.ends_at, windows.states[windows.period]

    @property
    def counted(self) -> int:
        """In the present window."""
        with self._lock:
            local = self._windows.states.get(self._windows.present_at(self._clock()))
            return 0 if local is None else local.counted

    # For the owner, which holds the lock

    def seconds_to_tick(self, monotonic: float) -> float:
        if self._closed or not self._windows.states:
            return inf
        now = self._clock()
        return min(self._windows.seconds_to_prepare(now), self._windows.seconds_to_finish(now, monotonic))

    def tick(self, monotonic: float) -> tuple[int | None, Iterable[int]]:
        """The window that has to be announced to the coordinator, and those that are finished, oldest first."""
        if self._closed:  # all windows leave, also the present one
            return None, ()
        now = self._clock()
        prepared = self._windows.prepare(now, _has_counted)
        if prepared is not None:
            self._windows.states[prepared].announced = True
        finished = self._windows.finish(now, monotonic)
        for local in finished.values():
            local.close()
        return prepared, finished

    def left(self, period: int) -> None:
        """The coordinator has the final count of a window that is finished."""
        self._remove(self.key.window(period))

    def close(self) -> None:
        """The owner closes the counters of all windows."""
        self._closed = True

    def reset(self, spread: float) -> None:
        """Begin again, in a process that has counted nothing. The owner closes the counters that were there."""
        self._present = inf, -inf, None
        self._windows: SitePeriods[LocalCounter] = SitePeriods(self._calendar, self._window, spread)

    def _window(self, period: int) -> LocalCounter:
        return self._new(self.key.window(period))


def _has_counted(local: LocalCounter) -> bool:
    return local.count > 0


def spread_of(*parts: object) -> float:
    """From 0 to 1, different for every site and series: sites must not all prepare and finish at the same moment."""
    return crc32(repr(parts).encode()) / (1 << 32)
