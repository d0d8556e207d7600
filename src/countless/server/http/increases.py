"""What the page shows of a counter before its total: its rate, this hour, today, and bars of minutes, hours or days.

All of it is computed from published answers, so the read scope may see it.
"""

from functools import lru_cache
from typing import Any

from countless.core.calendar import Calendar, calendar_of
from countless.core.windows.rolling import PastTotals
from countless.core.windows.spans import SpanCount
from countless.core.windows.window import WindowState
from countless.server.http.edges import BARS, LENGTHS_S
from countless.server.http.history import History

Row = list[Any]  # of a bar: start, end, lower, estimate, upper, state, since when it is known

RATE_SPANS_S = (60, 300, 900, 3600, 21_600, 86_400)
FIRST_RATE_SPANS_S = (30, 15, 8, 4, 2, 1)  # while less than a minute is known
MIN_RATE_EVENTS = 10
MAX_RATE_WIDTH = 0.5  # of the expected count
FIGURES = {"this-hour": "hour", "today": "day"}
_BARS_WORTH_IT = 60  # with more than so many minutes, hours are shown first


class Increases:
    """Of a counter without windows, from the recorded answers. Hours and days are those of UTC."""

    tz = "UTC"
    pers = tuple(LENGTHS_S)

    def __init__(self, history: History) -> None:
        self._now = history.recorded_at
        self._past = PastTotals(history.records())
        self._known_s = max(1.0, self._now - self._past.first.time)

    def count(self, start: float, end: float) -> SpanCount:
        """Of a span that has begun. With `known_since`, it is the count since that moment only."""
        over = end <= self._now
        end = min(end, self._now)
        count = self._past.count(start, end)
        if count.known_since is not None:
            count = self._past.count(count.known_since, end)._replace(start=start, known_since=count.known_since)
        return count._replace(state=WindowState.CLOSED if over else WindowState.OPEN)

    def rate(self) -> dict[str, Any]:
        """Events per second over the shortest span that says something: of a busy counter the last minute.

        The span is long enough for MIN_RATE_EVENTS at the rate of the longest one, and its bounds are not too wide.
        """
        spans = [span for span in RATE_SPANS_S if span <= self._known_s]
        spans = spans or [next(span for span in FIRST_RATE_SPANS_S if span <= self._known_s)]
        counts = {span: self.count(self._now - span, self._now) for span in spans}
        longest = spans[-1]
        for span, count in counts.items():
            expected = counts[longest].estimate * span / longest
            if expected >= MIN_RATE_EVENTS and count.upper - count.lower <= MAX_RATE_WIDTH * expected:
                break
        return {
            "over": span,
            "lower": count.lower / span,
            "estimate": count.estimate / span,
            "upper": count.upper / span,
        }

    def figures(self) -> list[dict[str, Any]]:
        return [{"name": name, **self._figure(per)} for name, per in FIGURES.items()]

    def _figure(self, per: str) -> dict[str, Any]:
        calendar = calendar_of(per, self.tz)
        count = self.count(*calendar.bounds(calendar.period_at(self._now)))
        return {
            "lower": count.lower,
            "estimate": count.estimate,
            "upper": count.upper,
            "exact": count.exact and self._past.last.holds,
            "since": count.known_since,
        }

    def per(self, wanted: str = "") -> str:
        """The periods to show as bars. By default the shortest, unless enough is known for many of the next one."""
        default = next((per for per in self.pers if self._known_s < _BARS_WORTH_IT * LENGTHS_S[per]), self.pers[-1])
        return wanted if wanted in self.pers else default

    def bars(self, per: str, number: int | None = None) -> list[Row]:
        """The last `number` of them, oldest first; none from before anything is known."""
        calendar = calendar_of(per, self.tz)
        periods = _last_periods(calendar, calendar.period_at(self._now), number or BARS[per])
        counts = [self.count(*period) for period in periods if period[1] > self._past.first.time]
        return [
            [start, end, count.lower, count.estimate, count.upper, count.state, count.known_since]
            for (start, end), count in zip(periods[-len(counts) :], counts, strict=True)
        ]


@lru_cache(maxsize=256)
def _last_periods(calendar: Calendar, period: int, number: int) -> list[tuple[int, int]]:
    """The bounds of a period and of those before it, oldest first: the same for many counters."""
    periods = [period]
    while len(periods) < number:
        periods.append(calendar.previous(periods[-1]))
    return [calendar.bounds(each) for each in reversed(periods)]
