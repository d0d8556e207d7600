"""The windows of the counters of one session: which must be announced, and which are finished and have to leave.

The finished windows of a series leave one after the other. The coordinator remembers only the last one that has left,
so none may leave before an earlier one has. A window that the coordinator rejects, because the clock of the site is far
ahead of its own, is tried again: the oldest of each series, once a minute.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable
from math import inf
from threading import RLock
from typing import Protocol

from countless.client.ticks import MAX_TICK_S, Ticks
from countless.wire.keys import Key


class WindowsState(Protocol):
    """The windows of one series, or of a family."""

    @property
    def key(self) -> Key:
        """All of them together."""

    def seconds_to_tick(self, monotonic: float) -> float:
        """Until `tick` should be called."""

    def tick(self, monotonic: float) -> tuple[int | None, Iterable[int]]:
        """The window that has to be announced to the coordinator, and those that are finished, oldest first."""

    def left(self, period: int) -> None:
        """The coordinator has the final count of a window that is finished."""


class SessionWindows:
    """Everything but `ticks.tick` is called with the lock. `join` sends a Join soon, `notify` asks for `pop_due`."""

    def __init__(self, lock: RLock, join: Callable[[Key], None], notify: Callable[[], None]) -> None:
        self.ticks = Ticks[Key](lock, self._look_after)
        self._join = join
        self._notify = notify
        # By the key of all windows together:
        self._states: dict[Key, WindowsState] = {}
        self._finished: dict[Key, deque[int]] = {}  # until they have left, in ascending order
        self._due: dict[Key, None] = {}  # the first of them has to leave now
        self._rejected: dict[Key, set[int]] = {}
        self._try_again_at: dict[Key, float] = {}

    def add(self, state: WindowsState) -> None:
        self._states[state.key] = state
        self.ticks.schedule(state.key, 0.0)

    def add_counter(self, key: Key) -> None:
        """If it is a window, its series has to be looked after."""
        if key.is_window:
            self.ticks.schedule(key.windows, 0.0)

    def finish(self, keys: Iterable[Key]) -> None:
        """These windows leave as soon as the earlier ones of their series have left. Other counters are ignored."""
        for key in sorted(key for key in keys if key.is_window):
            finished = self._finished.setdefault(key.windows, deque())
            if key.period not in finished:
                finished.append(key.period)
            self._make_due(key.windows)

    def finish_all(self, keys: Iterable[Key]) -> None:
        """As `finish`, for the last time: each of those that were rejected gets another attempt, in its turn."""
        self._rejected.clear()
        self.finish(keys)

    def new_stream(self) -> None:
        for windows in self._finished:
            self._make_due(windows)
        for windows in self._rejected:
            self._try_again_soon(windows)

    def pop_due(self) -> Key | None:
        """A window that has to leave now."""
        if not self._due:
            return None
        windows = self._due.popitem()[0]
        return windows.window(self._finished[windows][0])

    def left(self, key: Key) -> bool:
        """The coordinator has the final count. False: it is not the first window that has to leave."""
        windows = key.windows
        if not self._is_first(key):
            return False
        finished = self._finished[windows]
        finished.popleft()
        if finished:
            self._make_due(windows)
        else:
            del self._finished[windows]
            self._due.pop(windows, None)
        if windows in self._rejected:
            self._try_again_soon(windows)
        if windows in self._states:
            self._states[windows].left(key.period)
        return True

    def leave_again(self, key: Key) -> None:
        """If this window has to leave now, say so again: the coordinator did not know it."""
        if self._is_first(key):
            self._make_due(key.windows)

    def _make_due(self, windows: Key) -> None:
        if self._finished[windows][0] not in self._rejected.get(windows, ()):
            self._due[windows] = None
            self._notify()

    def _is_first(self, key: Key) -> bool:
        finished = self._finished.get(key.windows)
        return finished is not None and finished[0] == key.period

    # Windows that were rejected

    def reject(self, key: Key, now: float) -> bool:
        """False: it is a window of a series of which others were rejected before."""
        if not key.is_window:
            return True
        windows = key.windows
        is_first = windows not in self._try_again_at
        self._rejected.setdefault(windows, set()).add(key.period)
        self._try_again_at.setdefault(windows, now + MAX_TICK_S)
        self.ticks.schedule(windows, self._try_again_at[windows])
        return is_first

    def is_rejected(self, key: Key) -> bool:
        """It is joined again in its turn."""
        return key.period in self._rejected.get(key.windows, ())

    def behind(self, rejected: Container[Key]) -> set[Key]:
        """The windows that cannot leave because of one of these."""
        stuck = ((windows, each) for windows, each in self._finished.items() if windows.window(each[0]) in rejected)
        return {windows.window(period) for windows, finished in stuck for period in finished}

    def _try_again_soon(self, windows: Key) -> None:
        self._try_again_at[windows] = 0.0
        self.ticks.schedule(windows, 0.0)

    def _try_again(self, windows: Key, now: float) -> float:
        """Join the oldest window again, if it is time. Returns the seconds to the next attempt."""
        if now < self._try_again_at.get(windows, inf):
            return self._try_again_at.get(windows, inf) - now
        rejected = self._rejected.pop(windows, None)
        if rejected is None:
            del self._try_again_at[windows]
            return inf
        oldest = min(rejected)
        if len(rejected) > 1:
            self._rejected[windows] = rejected - {oldest}
        self._try_again_at[windows] = now + MAX_TICK_S
        self._join(windows.window(oldest))
        self.leave_again(windows.window(oldest))
        return MAX_TICK_S

    # Ticks

    def _look_after(self, windows: Key, now: float) -> float:
        return min(self._tick(windows, now), self._try_again(windows, now))

    def _tick(self, windows: Key, now: float) -> float:
        """Seconds to the next tick."""
        state = self._states.get(windows)
        if state is None:
            return inf
        announced, finished = state.tick(now)
        if announced is not None:
            self._join(windows.window(announced))
        self.finish(map(windows.window, finished))
        return state.seconds_to_tick(now)
