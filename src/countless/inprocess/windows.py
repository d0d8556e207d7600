"""The windows of a `Tracker` and of a `Family`: a world for each, whose sites leave when it has ended.

All sites have the same clock. There is no thread in the background, so windows are closed by the calls of the program.
Then the counts of a window are exact. No later event is counted in it, even if the clock goes back.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf, nextafter
from threading import RLock
from typing import NamedTuple

from countless.core.answer import Answer
from countless.core.calendar import Calendar
from countless.core.coordinator import Coordinator
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.site import FamilySite
from countless.core.messages import SiteId
from countless.core.parameters import require_rolling
from countless.core.periods.rolling import TotalRecord, count_since, narrower
from countless.core.periods.site import MARGIN_S, SitePeriods
from countless.core.periods.spans import SpanCount, count_between, span_named
from countless.core.periods.window import TotalAnswer, Window, WindowRule, WindowState
from countless.core.site import require_increment
from countless.errors import InvalidParameter, NoWindows
from countless.inprocess.world import LabelWorld, TrackedTotal, Traffic

RECORDS_PER_MARGIN = 24  # answers of the past: every 15 seconds where windows are hours
MAX_RECORDS = 512  # beyond it every second one of the older half is dropped, so gaps grow with the age


class OpenWindow(NamedTuple):
    period: int
    total: TrackedTotal


class TrackedWindows:
    """A total for each open window, the counts of closed ones, and the sum.

    A site joins a window with its first event in it. A window is closed at once when the program reads windows,
    otherwise when an event comes some time after its end.

    Everything is called with the lock held. `new` makes the total of a window, from its period, its floor and the
    number of sites to expect. `changed` is called when the sum may have changed. `answer` is `total_answer`.
    """

    def __init__(
        self,
        rule: WindowRule,
        clock: Callable[[], float],
        lock: RLock,
        new: Callable[[int, int, int], TrackedTotal],
        changed: Callable[[], None],
        answer: Callable[[int, list[Answer], float], TotalAnswer],
    ) -> None:
        self.lock = lock
        self.sites: dict[SiteId, WindowedSite] = {}
        self._rule = rule
        self._calendar = rule.calendar
        self._margin_s = MARGIN_S[rule.per]
        self._clock = clock
        self._new = new
        self._changed = changed
        self._answer = answer
        self._windows: SitePeriods[OpenWindow] = SitePeriods(self._calendar, self._open)
        self._closed: dict[int, int] = {}  # counts by period, oldest first
        self._settled = 0  # the sum of all windows that were closed
        self._kept_since = -inf  # of the windows before this moment, only the sum is known
        self._last = 0  # the window that was closed last
        self._largest: float = 0  # the largest estimate so far
        self._past = PastAnswers(self._margin_s / RECORDS_PER_MARGIN)
        self._close_at = inf  # when an event closes the first window

    # Counting

    def join(self, site_id: SiteId) -> "WindowedSite":
        site = self.sites[site_id] = WindowedSite(site_id, self)
        return site

    def leave(self, site_id: SiteId) -> int:
        """All that it has counted, in all windows."""
        site = self.sites.pop(site_id)
        site.open = False
        for _, total in self._windows.states.values():
            if site_id in total.sites:
                total.leave(site_id)
        return site.count

    def add(self, site: "WindowedSite", n: int) -> None:
        if not site.open:
            raise InvalidParameter("site", site.site_id.site, "a site that has not been removed")
        now = self._clock()
        if now >= self._close_at:
            self._close(now - self._margin_s)
        total = self._windows.enter(now).total
        if self._past.is_due(now):
            self._record(nextafter(now, -inf))  # the total before this event
        local = total.sites.get(site.site_id)
        if local is None:
            total.join(site.site_id, n)
            self._changed()
        else:
            local.add(n)
        site.count += n

    def _open(self, period: int) -> OpenWindow:
        used = [each for each in self._windows.states.values() if each.period < period and each.total.sites]
        # Of an open window we use what is published: the floor, which readers see, must not tell more.
        last = int(max(used).total.answer.lower) if used else self._last
        self._close_at = min(self._close_at, self._calendar.bounds(period)[1] + self._margin_s)
        return OpenWindow(period, self._new(period, self._rule.floor_after(last), len(self.sites)))

    def _close(self, moment: float) -> None:
        """Close the windows that have ended by this moment."""
        finished = self._windows.finish(moment, moment)
        if not finished:
            return
        for period, total in finished.values():
            for site_id in list(total.sites):
                total.leave(site_id)
            if total.total:
                self._closed[period] = self._last = total.total
                self._settled += total.total
        for period in list(self._closed)[: -self._rule.windows_kept]:
            del self._closed[period]
            self._kept_since = self._calendar.bounds(period)[1]
        ends = (self._calendar.bounds(period)[1] for period in self._windows.states)
        self._close_at = min(ends, default=inf) + self._margin_s
        self._changed()

    def _record(self, now: float) -> None:
        answer = self.answer
        self._past.add(TotalRecord(now, answer.estimate, answer.lower, answer.upper, holds=True))

    # Reading

    @property
    def answer(self) -> TotalAnswer:
        answers = [total.answer for total in self._open_totals()]
        self._largest = max(self._largest, self._settled + sum(answer.estimate for answer in answers))
        return self._answer(self._settled, answers, self._largest)

    @property
    def estimate(self) -> float:
        return self.answer.estimate

    @property
    def total(self) -> int:
        return self._settled + sum(total.total for total in self._open_totals())

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the current window."""
        return self._windows.enter(self._clock()).total.coordinator

    @property
    def traffic(self) -> Traffic:
        return self._windows.enter(self._clock()).total.traffic

    @property
    def windows(self) -> list[Window]:
        """The windows that are kept and in which something was counted, and the present one; oldest first."""
        return list(self._read(self._now()))

    def window(self, which: str) -> SpanCount:
        now = self._now()
        if not isinstance(which, str):
            raise InvalidParameter("window", which, "a string, such as now, last, today or 2026-11-16T10:30")
        return self._count(*span_named(which, self._calendar, now), now)

    def rolling(self, over: str | float) -> SpanCount:
        length_s = require_rolling("over", over)
        now = self._now()
        self._record(now)
        start, end = now - length_s, nextafter(now, inf)  # clocks may show whole seconds: with the events of now
        return narrower(self._count(start, end, now)._replace(end=now), count_since(self._past.records, start))

    def _now(self) -> float:
        """Read the clock and close ended windows; never before the window in which events are counted."""
        now = self._clock()
        self._close(now)
        return max(now, self._calendar.bounds(self._windows.present_at(now))[0])

    def _count(self, start: float, end: float, now: float) -> SpanCount:
        dropped = self._settled - sum(self._closed.values())
        return count_between(self._read(now), start, end, now, dropped=dropped, kept_since=self._kept_since)

    def _read(self, now: float) -> Iterator[Window]:
        self._windows.enter(now)
        for period, count in self._closed.items():
            yield Window(period, *self._calendar.bounds(period), count, count, count, WindowState.CLOSED)
        for period, window in sorted(self._windows.states.items()):
            answer = window.total.answer
            lower, upper = answer.bounds
            yield Window(period, *self._calendar.bounds(period), lower, answer.estimate, upper, WindowState.OPEN)

    def _open_totals(self) -> Iterator[TrackedTotal]:
        return (window.total for _, window in sorted(self._windows.states.items()))


class WindowedSite:
    """One site of a `Tracker` with windows: an event belongs to the window that the clock shows."""

    __slots__ = ("_windows", "count", "open", "site_id")

    def __init__(self, site_id: SiteId, windows: TrackedWindows) -> None:
        self.site_id = site_id
        self.count = 0  # all that it has counted, in all windows
        self.open = True  # it has not been removed
        self._windows = windows

    def __repr__(self) -> str:
        return f"<WindowedSite {self.site_id.site!r}: {self.count:,} counted>"

    def add(self, n: int = 1) -> None:
        require_increment(n)
        with self._windows.lock:
            self._windows.add(self, n)

    inc = add


class PastAnswers:
    """The answers of the past, in little memory: many of the last minutes, few of long ago. Oldest first. If the clock
    goes back, they begin again.
    """

    def __init__(self, gap_s: float) -> None:
        self.records: list[TotalRecord] = []
        self._gap_s = gap_s

    def is_due(self, now: float) -> bool:
        return not self.records or not 0 <= now - self.records[-1].time < self._gap_s

    def add(self, record: TotalRecord) -> None:
        records = self.records
        if records and record.time < records[-1].time:
            records.clear()
        if records and record.time == records[-1].time:
            records.pop()
        records.append(record)
        if len(records) > MAX_RECORDS:
            del records[: MAX_RECORDS // 2 : 2]


class FamilyWindows:
    """The present window of a `Family` and the last one. Without a calendar, there is one window.

    All sites enter a window when the clock shows it. Everything is called with the lock held.
    """

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
        self._present = LabelWorld(new_coordinator(list(fleet)), fleet, new_site)
        self._closed: tuple[int, FamilyCoordinator] | None = None  # the period and the counts of the last window

    @property
    def present(self) -> LabelWorld:
        """The window that the clock shows. If the clock goes back, the last one that it has shown."""
        if self._calendar is not None:
            period = self._calendar.period_at(self._clock())
            if period > self._period:
                self._enter(period)
        return self._present

    @property
    def traffic(self) -> Traffic:
        return self.present.traffic

    def named(self, window: str) -> FamilyCoordinator:
        """The coordinator of the window `now`, or of the `last` one, the one before it."""
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
        site_ids = list(finished.sites)
        self._present = LabelWorld(self._new_coordinator(site_ids), site_ids, finished.new_site, finished.meter)
        for site_id in site_ids:
            finished.leave(site_id)
        self._closed = self._period, finished.coordinator
        self._period = period
