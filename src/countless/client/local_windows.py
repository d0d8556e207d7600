"""Windows in one process: each event is counted in the window that the clock shows.

Every window is a local counter, or another thing that is counted, with a key of its own (`requests@hour:490123`). An
event of a counter without a lock is three steps: compare the clock with the bounds of the present window, take the next
number of its counter, compare that with the threshold. Meanwhile another thread may finish the window. Then the number
is in its final count, or the event is counted in the present window instead: `LocalCounter.add_with_lock` knows which.
Events of all other kinds are counted under the lock, so the window that the clock shows cannot be finished meanwhile.
"""

from collections.abc import Callable, Iterable
from math import inf
from threading import RLock
from typing import Generic, Protocol, TypeVar
from zlib import crc32

from countless.client.local_counter import NO_NUMBER, LocalCounter
from countless.core.periods.site import SitePeriods
from countless.core.site import MAX_INCREMENT, require_increment
from countless.errors import InvalidParameter
from countless.wire.keys import Key, parse_calendar

_ONE = 1  # CPython has one object for it, which True and 1.0 are not


class LocalWindow(Protocol):
    def close(self) -> object:
        """A later `add` raises, or goes to another window."""


L = TypeVar("L", bound=LocalWindow)


class LocalWindows(Generic[L]):
    """The windows of one series, and of none of its labels; or of a family. Everything is called with the lock."""

    __slots__ = ("_calendar", "_clock", "_closed", "_lock", "_new", "_remove", "_windows", "key")

    def __init__(
        self,
        key: Key,
        spread: float,
        lock: RLock,
        clock: Callable[[], float],
        new: Callable[[Key], L],
        remove: Callable[[Key], None],
    ) -> None:
        self.key = key  # of all windows together
        self._calendar = parse_calendar(key.calendar)
        self._lock = lock
        self._clock = clock
        self._new = new
        self._remove = remove  # everything in it is delivered
        self._closed = False
        self.reset(spread)

    @property
    def _present(self) -> L | None:
        """The window that the clock shows, if anything was counted in it."""
        return self._windows.states.get(self._windows.present_at(self._clock()))

    def _enter(self) -> L:
        if self._closed:
            raise self._error()
        return self._windows.enter(self._clock())

    def _error(self) -> InvalidParameter:
        return InvalidParameter("counter", self.key.name, "a counter of a client that has not been closed")

    # For the owner

    def seconds_to_tick(self, monotonic: float) -> float:
        if self._closed:
            return inf
        now = self._clock()
        return min(self._seconds_to_announce(now), self._windows.seconds_to_finish(now, monotonic))

    def tick(self, monotonic: float) -> tuple[int | None, Iterable[int]]:
        """The window that has to be announced to the coordinator, and those that are finished, oldest first."""
        if self._closed:  # all windows leave, the present one too
            return None, ()
        now = self._clock()
        announced = self._announce(now)
        finished = self._windows.finish(now, monotonic)
        for local in finished.values():
            local.close()
        return announced, finished

    def _seconds_to_announce(self, now: float) -> float:
        return inf

    def _announce(self, now: float) -> int | None:
        """A window that has not begun, so that the coordinator can answer before."""
        return None

    def left(self, period: int) -> None:
        """The coordinator has everything that was counted in a window that is finished."""
        self._remove(self.key.window(period))

    def close(self) -> None:
        """The owner closes all windows."""
        self._closed = True

    def reset(self, spread: float) -> None:
        """Begin again, in a process that has counted nothing. The owner closes the windows that were there."""
        self._windows: SitePeriods[L] = SitePeriods(self._calendar, self._window, spread)

    def _window(self, period: int) -> L:
        return self._new(self.key.window(period))


class LocalCounterWindows(LocalWindows[LocalCounter]):
    """A program calls `add`."""

    __slots__ = ("_last",)
    _last: tuple[float, float, LocalCounter | None]  # the window that was entered last: when it starts and ends

    def add(self, n: int = 1) -> None:
        starts_at, ends_at, local = self._last  # one object, so that they belong to each other
        if n is _ONE and starts_at <= self._clock() < ends_at and local is not None:
            number = next(local.sequence, NO_NUMBER)  # inline: calling `local.add` makes this a fifth slower
            if number < local.threshold or local.add_with_lock(1, number):
                return
        elif type(n) is not int or not 0 <= n <= MAX_INCREMENT:
            require_increment(n)
        with self._lock:
            local = self._enter()
            self._set_last()
            if not local.add_with_lock(n, 0):
                raise self._error()

    def _set_last(self) -> None:
        windows = self._windows  # nothing is called from here on, so that no signal handler enters another window
        self._last = windows.starts_at, windows.ends_at, windows.states[windows.period]

    @property
    def counted(self) -> int:
        """In the present window."""
        with self._lock:
            local = self._present
            return 0 if local is None else local.counted

    def _seconds_to_announce(self, now: float) -> float:
        return self._windows.seconds_to_prepare(now) if self._windows.states else inf

    def _announce(self, now: float) -> int | None:
        prepared = self._windows.prepare(now, _has_counted)
        if prepared is not None:
            self._windows.states[prepared].announced = True
        return prepared

    def reset(self, spread: float) -> None:
        self._last = inf, -inf, None
        super().reset(spread)


def _has_counted(local: LocalCounter) -> bool:
    return local.count > 0


def spread_of(*parts: object) -> float:
    """From 0 to 1, different for every site and series: sites must not all prepare and finish at the same moment."""
    return crc32(repr(parts).encode()) / (1 << 32)
