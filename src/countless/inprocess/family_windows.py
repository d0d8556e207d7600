"""The windows of a `Family`: a network for each, of which the sites leave when the clock shows the next one."""

from collections.abc import Callable, Iterable
from threading import RLock

from countless.core.calendar import Calendar
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.site import FamilySite
from countless.core.messages import SiteId
from countless.errors import InvalidParameter, NoWindows
from countless.inprocess.family_network import FamilyNetwork
from countless.inprocess.network import Traffic


class FamilyWindows:
    """Without a calendar, one window for ever. Everything is called with the lock held."""

    def __init__(
        self,
        fleet: Iterable[SiteId],
        new_coordinator: Callable[[list[SiteId]], FamilyCoordinator],
        new_site: Callable[[SiteId], FamilySite],
        calendar: Calendar | None,
        clock: Callable[[], float],
    ) -> None:
        self.lock = RLock()
        self._calendar = calendar
        self._clock = clock
        self._new_coordinator = new_coordinator
        self._period = 0 if calendar is None else calendar.period_at(clock())
        self._present = FamilyNetwork(new_coordinator(list(fleet)), fleet, new_site)
        self._closed: tuple[int, FamilyCoordinator] | None = None  # the period and the counts of the last window
        self._traffic = Traffic(0, 0)  # of the windows that are closed

    @property
    def present(self) -> FamilyNetwork:
        """The window that the clock shows. If the clock goes back, the last one that it has shown."""
        if self._calendar is not None:
            period = self._calendar.period_at(self._clock())
            if period > self._period:
                self._enter(period)
        return self._present

    @property
    def traffic(self) -> Traffic:
        return self._traffic + self.present.traffic

    def named(self, window: str) -> FamilyCoordinator:
        """Of the window `now`, or of the `last` one, the one before it."""
        if window not in ("now", "last"):
            raise InvalidParameter("window", window, "now or last")
        present = self.present
        if window == "now":
            return present.coordinator
        if self._calendar is None:
            raise NoWindows(present.coordinator.family, has_rolling=False)
        period, closed = self._closed or (0, present.coordinator)
        return closed if period == self._period - 1 else self._new_coordinator([])

    def _enter(self, period: int) -> None:
        finished = self._present
        self._present = finished.successor(self._new_coordinator(finished.site_ids))
        for name in finished.names:
            finished.remove_site(name)
        self._traffic += finished.traffic
        self._closed = self._period, finished.coordinator
        self._period = period
