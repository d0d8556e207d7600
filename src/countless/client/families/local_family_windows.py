"""A family, or a distribution, with windows in one process: a `LocalFamily` for each window.

Everything is counted under the lock, so the window that the clock shows cannot be finished while an event is counted.
"""

from collections.abc import Callable, Iterable
from math import inf
from threading import RLock

from countless.client.families.local_family import LocalFamily
from countless.core.family.rule import FamilyRule
from countless.core.periods.site import SitePeriods
from countless.errors import InvalidParameter
from countless.wire.keys import Key, parse_calendar


class LocalFamilyWindows:
    """A program calls `add`; the rest is for the owner. Unlike those of counters, windows are not announced before they
    begin: a family counts every window from nothing, so it has nothing to learn from the coordinator.
    """

    def __init__(
        self,
        key: Key,
        rule: FamilyRule,
        cap: int,
        spread: float,
        lock: RLock,
        clock: Callable[[], float],
        new: Callable[[Key, FamilyRule, int], LocalFamily],
        remove: Callable[[Key], None],
    ) -> None:
        self.key = key  # of all windows together
        self.name = key.name
        self.rule = rule
        self.cap = cap
        self._calendar = parse_calendar(key.calendar)
        self._lock = lock
        self._clock = clock
        self._new = new
        self._remove = remove  # its counts are delivered
        self._closed = False
        self.reset(spread)

    def __repr__(self) -> str:
        return f"<LocalFamilyWindows {self.name!r}: {self.count:,} counted in the present window>"

    # For the program

    def add(self, label: str, n: int = 1) -> None:
        with self._lock:
            self._enter().add(label, n)

    def add_overflow(self, n: int = 1) -> None:
        """Count events of labels beyond the cap of the program."""
        with self._lock:
            self._enter().add_overflow(n)

    def _enter(self) -> LocalFamily:
        if self._closed:
            raise InvalidParameter("counter", self.name, "a counter of a client that has not been closed")
        return self._windows.enter(self._clock())

    @property
    def count(self) -> int:
        """How many events this process has counted, in the present window."""
        with self._lock:
            present = self._present
            return 0 if present is None else present.count

    def count_of(self, label: str) -> int:
        with self._lock:
            present = self._present
            return 0 if present is None else present.count_of(label)

    @property
    def _present(self) -> LocalFamily | None:
        return self._windows.states.get(self._windows.present_at(self._clock()))

    # For the owner, which holds the lock

    def seconds_to_tick(self, monotonic: float) -> float:
        return inf if self._closed else self._windows.seconds_to_finish(self._clock(), monotonic)

    def tick(self, monotonic: float) -> tuple[None, Iterable[int]]:
        """The windows that are finished, oldest first."""
        if self._closed:  # all windows leave, also the present one
            return None, ()
        finished = self._windows.finish(self._clock(), monotonic)
        for family in finished.values():
            family.close()
        return None, finished

    def left(self, period: int) -> None:
        """The coordinator has everything that was counted in a window that is finished."""
        self._remove(self.key.window(period))

    def close(self) -> None:
        """The owner closes the families of all windows."""
        self._closed = True

    def reset(self, spread: float) -> None:
        """Begin again, in a process that has counted nothing. The owner closes the families that were there."""
        self._windows: SitePeriods[LocalFamily] = SitePeriods(self._calendar, self._window, spread)

    def _window(self, period: int) -> LocalFamily:
        return self._new(self.key.window(period), self.rule, self.cap)
