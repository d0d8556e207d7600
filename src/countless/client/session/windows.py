"""The windows of the counters of one session: which must be announced, and which are finished and have to leave.

The finished windows of a series leave one after the other. The coordinator remembers only the last one that has left,
so none may leave before an earlier one has. A window that the coordinator rejects, because the clock of the site is far
ahead of its own, is tried again: the oldest of each series, once a minute.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from math import inf
from threading import RLock
from typing import Protocol

from countless.client.session.ticks import MAX_TICK_S, TICKS_AT_ONCE, Ticks
from countless.wire.windows import WindowName, parse_window


class WindowsState(Protocol):
    """The windows of one series, or of a family."""

    @property
    def of_family(self) -> bool: ...

    def seconds_to_tick(self, monotonic: float) -> float:
        """Until `tick` should be called."""

    def tick(self, monotonic: float) -> tuple[str | None, list[str]]:
        """The window that has to be announced to the coordinator, and those that are finished, oldest first."""

    def left(self, name: str) -> None:
        """The coordinator has the final count of a window that is finished."""


class SessionWindows:
    """Everything but `tick` is called with the lock held. `join` sends a Join soon, `notify` asks for `pop_due`."""

    def __init__(self, lock: RLock, join: Callable[[str], None], notify: Callable[[], None]) -> None:
        self._lock = lock
        self._join = join
        self._notify = notify
        self._states: dict[str, WindowsState] = {}  # these by series
        self._finished: dict[str, deque[str]] = {}  # until they have left, in ascending order
        self._due: dict[str, None] = {}  # the first of them has to leave now
        self._rejected: dict[str, set[str]] = {}
        self._try_again_at: dict[str, float] = {}
        self._ticks = Ticks()

    def add(self, series: str, state: WindowsState) -> None:
        self._states[series] = state
        self._ticks.schedule(series, 0.0)

    def add_counter(self, name: str) -> None:
        """If it is a window, its series has to be looked after."""
        window = parse_window(name)
        if window is not None:
            self._ticks.schedule(window.series, 0.0)

    def finish(self, names: Iterable[str]) -> None:
        """These windows leave as soon as the earlier ones of their series have left. Other counters are ignored."""
        for series, _, name in sorted((window.series, window.period, name) for name, window in _windows(names)):
            finished = self._finished.setdefault(series, deque())
            if name not in finished:
                finished.append(name)
            self._make_due(series)

    def finish_all(self, names: Iterable[str]) -> None:
        """As `finish`, for the last time: each of those that were rejected gets another attempt, in its turn."""
        self._rejected.clear()
        self.finish(names)

    def new_stream(self) -> None:
        for series in self._finished:
            self._make_due(series)
        for series in self._rejected:
            self._try_again_soon(series)

    def pop_due(self) -> str | None:
        """A window that has to leave now."""
        return self._finished[self._due.popitem()[0]][0] if self._due else None

    def left(self, name: str) -> bool:
        """The coordinator has the final count. False: it is not the first window that has to leave."""
        window = parse_window(name)
        if window is None or not self._is_first(window.series, name):
            return False
        series, finished = window.series, self._finished[window.series]
        finished.popleft()
        if finished:
            self._make_due(series)
        else:
            del self._finished[series]
            self._due.pop(series, None)
        if series in self._rejected:
            self._try_again_soon(series)
        if series in self._states:
            self._states[series].left(name)
        return True

    def leave_again(self, name: str) -> None:
        """If this window has to leave now, say so again: the coordinator did not know it."""
        window = parse_window(name)
        if window is not None and self._is_first(window.series, name):
            self._make_due(window.series)

    def _make_due(self, series: str) -> None:
        if self._finished[series][0] not in self._rejected.get(series, ()):
            self._due[series] = None
            self._notify()

    def _is_first(self, series: str, name: str) -> bool:
        return series in self._finished and self._finished[series][0] == name

    # Windows that were rejected

    def reject(self, name: str, now: float) -> bool:
        """False: it is a window of a series of which others were rejected before."""
        window = parse_window(name)
        if window is None:
            return True
        is_first = window.series not in self._try_again_at
        self._rejected.setdefault(window.series, set()).add(name)
        self._try_again_at.setdefault(window.series, now + MAX_TICK_S)
        self._ticks.schedule(window.series, self._try_again_at[window.series])
        return is_first

    def is_rejected(self, name: str) -> bool:
        """It is joined again in its turn."""
        window = parse_window(name)
        return window is not None and name in self._rejected.get(window.series, ())

    def behind(self, rejected: Container[str]) -> set[str]:
        """The windows that cannot leave because of one of these."""
        return {name for finished in self._finished.values() if finished[0] in rejected for name in finished}

    def _try_again_soon(self, series: str) -> None:
        self._try_again_at[series] = 0.0
        self._ticks.schedule(series, 0.0)

    def _try_again(self, series: str, now: float) -> float:
        """Join the oldest window again, if it is time. Returns the seconds to the next attempt."""
        if now < self._try_again_at.get(series, inf):
            return self._try_again_at.get(series, inf) - now
        rejected = self._rejected.pop(series, None)
        if rejected is None:
            del self._try_again_at[series]
            return inf
        _, oldest = min((window.period, name) for name, window in _windows(rejected))
        if len(rejected) > 1:
            self._rejected[series] = rejected - {oldest}
        self._try_again_at[series] = now + MAX_TICK_S
        self._join(oldest)
        self.leave_again(oldest)
        return MAX_TICK_S

    # Ticks

    @property
    def next_tick(self) -> float:
        """When to call `tick`."""
        return self._ticks.next_tick

    def tick(self, now: float) -> None:
        """Look after the series whose time has come. The lock is released after each, for threads that count."""
        for _ in range(TICKS_AT_ONCE):
            with self._lock:
                series = self._ticks.pop(now)
                if series is None:
                    return
                self._ticks.schedule_after(series, now, min(self._tick(series, now), self._try_again(series, now)))

    def _tick(self, series: str, now: float) -> float:
        """Seconds to the next tick."""
        state = self._states.get(series)
        if state is None:
            return inf
        announced, finished = state.tick(now)
        if announced is not None:
            self._join(announced)
        self.finish(finished)
        return state.seconds_to_tick(now)


def _windows(names: Iterable[str]) -> Iterator[tuple[str, WindowName]]:
    for name in names:
        window = parse_window(name)
        if window is not None:
            yield name, window
