"""Reading windows: the count of any span of time, with bounds, and the names of spans.

Every question about windows is one call of `count_between`: this hour, yesterday, the last 15 minutes. A window that
lies in the span counts completely. Of a window that lies partly in it, anything from nothing to all may be in the span.

    span                |----------------------------|
    windows     [---- 7 ----][---- 5 ----][---- 9 ...    9: the open window, counted up to now
    lower                        5        +   9
    upper            7    +      5        +   9

By the clocks of the sites these bounds always hold, if those of the windows do. A site whose clock is wrong by s
seconds moves events that are within s seconds of the ends of the span, and of the edges of windows, and no others.
"""

from collections.abc import Iterable, Sequence
from math import ceil, floor, inf
from typing import NamedTuple, Protocol

from countless.core.calendar import PERIODS, Calendar, Per, calendar_of
from countless.core.periods.window import Window, WindowState
from countless.errors import InvalidParameter


class SpanRate(NamedTuple):
    """Events per second: lower <= truth <= upper."""

    lower: float
    estimate: float
    upper: float


class SpanCount(NamedTuple):
    """Bounds of the number of events in a span of time: lower <= truth <= upper."""

    start: float  # seconds since 1970
    end: float  # the first moment after it
    lower: int
    estimate: int
    upper: int
    state: WindowState = WindowState.CLOSED
    lost: int = 0  # sites that ended without saying how much they had counted
    waiting: int = 0  # sites that have not finished a window of the span, or an earlier one
    known_since: float | None = None  # what was before this is only known as one number: with all that was ever counted

    @property
    def exact(self) -> bool:
        return self.lower == self.upper and not self.lost and not self.waiting

    @property
    def complete(self) -> bool:
        """The span is over, and every site has delivered its last count, so this is final."""
        return self.state is WindowState.CLOSED

    @property
    def rate(self) -> SpanRate:
        """Events per second of the span, which must have a length. The estimate is over the time that is known."""
        length_s = self.end - self.start
        known_s = length_s if self.known_since is None else max(1.0, self.end - self.known_since)
        lower, upper = self.lower / length_s, self.upper / length_s
        return SpanRate(lower, min(max(lower, self.estimate / known_s), upper), upper)

    def __str__(self) -> str:
        return f"{self.estimate:,} (from {self.lower:,} to {self.upper:,}; {self.state})"


def count_between(
    windows: Iterable[Window],
    start: float,
    end: float,
    now: float = inf,
    *,
    dropped: int = 0,
    kept_since: float = -inf,
) -> SpanCount:
    """The count of [start, end), from windows that do not overlap. Where there is no window, there was no event.

    `now` is the moment of reading. All events of the open window are before it, so a span that ends now, such as the
    last 15 minutes, has all of the open window if it began in the span. Windows before `kept_since` are not kept any
    more; their sum is `dropped`.

    >>> hours = [Window(0, 0, 3600, 7, 7, 7, WindowState.CLOSED), Window(1, 3600, 7200, 90, 95, 100, WindowState.OPEN)]
    >>> count_between(hours, 0, 7200, now=5400)[2:6]
    (97, 102, 107, <WindowState.OPEN: 'open'>)
    >>> count_between(hours, 1800, 5400, now=5400)[2:5]  # the last hour
    (90, 98, 107)
    """
    lower = upper = waiting = lost = 0
    estimate, known_since, states = 0.0, None, {WindowState.OPEN} if end > now else set()
    if dropped and start < kept_since:
        upper, known_since = dropped, kept_since
    for window in windows:
        if window.start >= end:
            continue
        waiting = max(waiting, window.waiting)  # also of earlier ones: such a site may have counted in this span too
        reached = min(window.end, max(window.start, now))
        inside = start <= window.start and reached <= end
        if not inside and reached <= start:
            continue
        states.add(window.state)
        lost += window.lost
        upper += floor(window.upper)
        if inside:
            lower += ceil(window.lower)
            estimate += window.estimate
        else:
            covered = min(reached, end) - max(window.start, start)
            estimate += window.estimate * covered / (reached - window.start)
    if waiting:
        states.add(WindowState.INCOMPLETE)
    state = next((state for state in WindowState if state in states), WindowState.CLOSED)  # the first of them
    estimate = min(max(lower, round(estimate)), upper)
    return SpanCount(start, end, lower, estimate, upper, state, lost, waiting, known_since)


class Kept(Protocol):
    """The windows of a counter that are kept, and those that are not."""

    @property
    def kept_from(self) -> int | None:
        """The windows of earlier moments, in seconds since 1970, are only in the total. None: all are kept."""

    @property
    def most_not_kept(self) -> int:
        """The most events that the windows before `kept_from` may have."""

    @property
    def complete_until(self) -> int:
        """All sites have finished the windows before this moment; some may have been lost."""


def count_of_span(kept: Kept, start: float, end: float, now: float, windows: Sequence[Window]) -> SpanCount:
    """From windows of the counter. Those outside of the span are not needed."""
    kept_since = -inf if kept.kept_from is None else kept.kept_from
    span = count_between(windows, start, end, now, dropped=kept.most_not_kept, kept_since=kept_since)
    if span.complete and end > kept.complete_until:  # without a window there, but a site may have counted one
        return span._replace(state=WindowState.INCOMPLETE)
    return span


def span_named(name: str, calendar: Calendar, now: float) -> tuple[int, int]:
    """Start and end of a span that people name, for a counter with windows of this calendar.

    | name                          | span                                                             |
    |-------------------------------|------------------------------------------------------------------|
    | now, last                     | the open window; the one before it                               |
    | this-hour, last-day ...       | `this` or `last`, and minute, hour, day or month                 |
    | today, yesterday              | this-day, last-day                                               |
    | 2026-11-16T10:30              | the window that contains this time; without an offset, local     |
    | 2026-11-16                    | that day                                                         |

    A day is made of the windows that begin on it: if hours begin at half past, it is from 00:30 to 00:30.

    >>> hours, now = Calendar("hour", "Europe/Berlin"), Calendar("hour").moment("2026-11-16T10:30Z")
    >>> [hours.local_time(second) for second in span_named("today", hours, now)]
    ['2026-11-16T00:00:00+01:00', '2026-11-17T00:00:00+01:00']
    """
    named, words = _named(calendar), "-".join(name.lower().replace("-", " ").split())  # also: "Last hour"
    if words in named:
        per, ago = named[words]
        if per == calendar.per:
            present = calendar.period_at(now)
            return calendar.bounds(calendar.previous(present) if ago else present)
        longer = calendar_of(per, calendar.tz)
        period = longer.period_at(calendar.bounds(calendar.period_at(now))[0])  # the open window belongs to it
        return windows_of(longer, longer.previous(period) if ago else period, calendar)
    try:
        moment = calendar.moment(name)
    except ValueError:
        allowed = f"one of: {', '.join(named)}, or a time such as 2026-11-16T10:30 or 2026-11-16T10:30+01:00"
        raise InvalidParameter("window", name, f"{allowed} (the windows of this counter are {calendar.per}s)") from None
    if len(name) == len("2026-11-16") and "today" in named and calendar.per != "day":
        days = calendar_of("day", calendar.tz)
        return windows_of(days, days.period_at(moment), calendar)
    return calendar.bounds(calendar.period_at(moment))


def _named(calendar: Calendar) -> dict[str, tuple[Per, int]]:
    """The kind of period that each name stands for, and how many periods ago it is. None is shorter than a window."""
    named = {"now": (calendar.per, 0), "last": (calendar.per, 1)}
    for per in PERIODS[PERIODS.index(calendar.per) :]:
        named |= {f"this-{per}": (per, 0), f"last-{per}": (per, 1)}
        named |= {"today": (per, 0), "yesterday": (per, 1)} if per == "day" else {}
    return named


def windows_of(longer: Calendar, period: int, calendar: Calendar) -> tuple[int, int]:
    """From the first window that begins in a longer period to the first that begins after it."""
    first, last = (_first_beginning(calendar, moment) for moment in longer.bounds(period))
    return first, last


def _first_beginning(calendar: Calendar, moment: int) -> int:
    start, end = calendar.bounds(calendar.period_at(moment))
    return start if start == moment else end
