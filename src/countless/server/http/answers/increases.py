"""The figures that the page shows of a counter beside its total: rate, this hour, today, and bars.

All of it is computed from published answers, so the read scope may see it, but for the numbers of sites of a bar.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from countless.core.calendar import PERIODS, Calendar, calendar_of
from countless.core.periods.rolling import PastTotals, narrower
from countless.core.periods.spans import SpanCount, count_of_span, windows_of
from countless.core.periods.window import Window, WindowState
from countless.server.http.history.history import History
from countless.server.http.history.series import BARS as BARS_WITHOUT_WINDOWS
from countless.server.http.history.series import LENGTHS_S
from countless.server.sessions.readable import Readable, WindowReader

# Start, end, lower, estimate, upper (None: not known), state, since when it is known; sites that are awaited, and lost.
Row = list[Any]

BARS = BARS_WITHOUT_WINDOWS | {"month": 24}
RATE_SPANS_S = (60, 300, 900, 3600, 21_600, 86_400)
FIRST_RATE_SPANS_S = (30, 15, 8, 4, 2, 1)  # while less than a minute is known
MIN_RATE_EVENTS = 10
MAX_RATE_WIDTH = 0.5  # of the expected count
_BARS_WORTH_IT = 60  # with more than so many minutes, hours are shown first


def increases_of(counter: Readable, history: History, per: str = "", bars: int | None = None) -> "Increases":
    """With bars of this kind of period, if the counter has them, and so many of them. Without windows that add up,
    those of its total.
    """
    if counter.windows is not None and counter.windows.adds_up:
        return WindowIncreases(counter.windows, counter.traffic.new, history, per, bars)
    return Increases(history, per, bars)


class Period(NamedTuple):
    start: float  # seconds since 1970
    end: float
    first: int  # the windows that it has, if the counter has windows
    after: int


class Increases:
    """Those of a counter without windows, from the recorded answers. Hours and days are those of UTC."""

    tz = "UTC"
    pers = tuple(LENGTHS_S)
    figure_pers: Mapping[str, str] = MappingProxyType({"this-hour": "hour", "today": "day"})

    def __init__(self, history: History, per: str = "", bars: int | None = None) -> None:
        self._past = PastTotals(history.records())
        self._now = history.recorded_at
        self._known_s = max(1.0, self._now - self._past.first.time)
        self._first_bar = self._past.first.time
        self.per = per if per in self.pers else self._default_per()
        self._number = bars or BARS[self.per]

    def rate(self) -> dict[str, Any]:
        """Events per second over the shortest span that says something: of a busy counter the last minute.

        The span is long enough for MIN_RATE_EVENTS, and its bounds are not too wide, at its own rate or at that of the
        longest one: a counter that is busier than it was in the last day shows its rate now.
        """
        spans = [span for span in RATE_SPANS_S if span <= self._known_s]
        spans = spans or [next(span for span in FIRST_RATE_SPANS_S if span <= self._known_s)]
        counts = {span: self._count(self._now - span, self._now) for span in spans}
        longest = spans[-1]
        for span, count in counts.items():
            expected = max(count.estimate, counts[longest].estimate * span / longest)
            if expected >= MIN_RATE_EVENTS and count.upper - count.lower <= MAX_RATE_WIDTH * expected:
                break
        upper = count.upper / span if self._holds(count) else None
        return {"over": span, "lower": count.lower / span, "estimate": count.estimate / span, "upper": upper}

    def figures(self) -> list[dict[str, Any]]:
        return [{"name": name, **self._figure(per)} for name, per in self.figure_pers.items()]

    def _figure(self, per: str) -> dict[str, Any]:
        count = self._known_part(per, *self._periods(per, 1))
        upper = count.upper if self._holds(count) else None
        return {"lower": count.lower, "estimate": count.estimate, "upper": upper, "since": count.known_since}

    def bars(self) -> list[Row]:
        """Oldest first; none from before anything is known."""
        return [self._row(period) for period in self._periods(self.per, self._number) if period.end > self._first_bar]

    def _row(self, period: Period) -> Row:
        count = self._known_part(self.per, period)
        waiting = count.waiting if count.state is WindowState.INCOMPLETE else 0
        bounds = [count.lower, count.estimate, count.upper if self._holds(count) else None]
        return [period.start, period.end, *bounds, count.state, count.known_since, waiting, count.lost]

    def _known_part(self, per: str, period: Period) -> SpanCount:
        """The count of a period that has begun; with `known_since`, since that moment only."""
        count = self._count_of_period(per, period)
        if count.known_since is None:
            return count
        known = self._count_of_period(per, period._replace(start=count.known_since))
        return known._replace(known_since=count.known_since)

    def _count_of_period(self, per: str, period: Period) -> SpanCount:
        state = WindowState.OPEN if period.end > self._now else WindowState.CLOSED
        return self._count(period.start, min(period.end, self._now))._replace(state=state)

    def _count(self, start: float, end: float) -> SpanCount:
        return self._past.count(start, end)

    def _holds(self, count: SpanCount) -> bool:
        """True if the true count cannot be more than `upper`. It can, if a site is silent."""
        return self._past.holds(min(count.end, self._now))

    def _periods(self, per: str, number: int) -> list[Period]:
        """The present period and those before it, oldest first."""
        calendar = calendar_of(per, self.tz)
        return _last_periods(calendar, calendar.period_at(self._now), number)

    def _default_per(self) -> str:
        """The shortest, unless enough is known for many of the next one."""
        return next((per for per in self.pers if self._known_s < _BARS_WORTH_IT * LENGTHS_S[per]), self.pers[-1])


class WindowIncreases(Increases):
    """Those of a counter with windows: bars are its windows, and longer periods are made of them.

    A day may have a thousand windows. So those that are closed are added up, and only the others are looked at.
    """

    def __init__(
        self,
        windows: WindowReader,
        is_new: bool,
        history: History,
        per: str = "",
        bars: int | None = None,
    ) -> None:
        self._windows = windows
        self._calendar = calendar = windows.calendar
        self.tz = calendar.tz
        self.pers = PERIODS[PERIODS.index(calendar.per) :]
        if calendar.per == "month":
            self.figure_pers = {**self.figure_pers, "this-month": "month"}
        super().__init__(history, per, bars)
        self._closed, self._present = windows.closed_windows, calendar.period_at(self._now)
        oldest = self._closed.first if self._closed.first is not None else self._present
        needed = [self._periods(self.per, self._number)[0].first, calendar.period_at(self._now - RATE_SPANS_S[-1])]
        needed += [self._periods(each, 1)[0].first for each in self.figure_pers.values() if each in self.pers]
        unsettled = windows.unsettled_windows(min(needed))
        self._first_bar = min([calendar.bounds(oldest)[0], *(window.start for window in unsettled)])
        if not is_new:  # windows are kept over a restart, answers are not
            self._known_s = max(self._known_s, self._now - self._first_bar)
        self._unsettled = unsettled

    def _count_of_period(self, per: str, period: Period) -> SpanCount:
        if per not in self.pers:
            return super()._count_of_period(per, period)
        closed = self._closed_window(period.first, period.after, period.start, period.end)
        return self._in_windows(period.start, period.end, closed)

    def _count(self, start: float, end: float) -> SpanCount:
        period = self._calendar.period_at(start)
        first_start, second_start = self._calendar.bounds(period)
        partly = self._closed_window(period, period + 1, first_start, second_start)
        others = self._closed_window(period + 1, self._present + 1, second_start, end)
        return narrower(super()._count(start, end), self._in_windows(start, end, partly, others))

    def _holds(self, count: SpanCount) -> bool:
        return not count.lost and (count.complete or super()._holds(count._replace(end=self._now)))

    def _closed_window(self, first: int, after: int, start: float, end: float) -> Window:
        """All closed windows from `first` to before `after`, as one."""
        total = self._closed.total_between(first, after - 1)
        return Window(first, int(start), int(min(end, self._now)), total, total, total, WindowState.CLOSED)

    def _in_windows(self, start: float, end: float, *closed: Window) -> SpanCount:
        windows = [*(window for window in closed if window.estimate), *self._unsettled]
        return count_of_span(self._windows, start, end, self._now, windows)

    def _periods(self, per: str, number: int) -> list[Period]:
        if per not in self.pers:
            return super()._periods(per, number)
        windows = self._calendar
        present = windows.period_at(self._now)
        if per == windows.per:
            return _last_periods(windows, present, number)
        longer = calendar_of(per, self.tz)
        last = longer.period_at(windows.bounds(present)[0])  # the open window belongs to it
        return _last_periods(longer, last, number, windows)

    def _default_per(self) -> str:
        return self._calendar.per


@lru_cache(maxsize=256)
def _last_periods(calendar: Calendar, period: int, number: int, windows: Calendar | None = None) -> list[Period]:
    """This period and those before it, oldest first, made of shorter windows: the same for many counters."""
    periods = [period]
    while len(periods) < number:
        periods.append(calendar.previous(periods[-1]))
    if windows is None:
        return [Period(*calendar.bounds(each), each, each + 1) for each in reversed(periods)]
    spans = [windows_of(calendar, each, windows) for each in reversed(periods)]
    return [Period(start, end, windows.period_at(start), windows.period_at(end)) for start, end in spans]
