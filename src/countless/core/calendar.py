"""Calendar periods: which minute, hour, day or month a moment belongs to, in any time zone.

A period begins at the first moment at which the local clock shows its beginning or something later. Minutes and hours
look only at the clock's seconds and minutes, so an hour that is repeated when summer time ends is a period of its own.

| case                                                     | effect                                                 |
|----------------------------------------------------------|--------------------------------------------------------|
| summer time begins or ends                               | a day of 23 or 25 hours; hours and minutes as always   |
| the zone's offset changes by half an hour (Lord Howe)    | also an hour of 30 or 90 minutes                       |
| a date that the zone skipped (Pacific/Apia, 30.12.2011)  | an empty period; no moment belongs to it               |
| clocks go back over midnight                             | the new day has begun, and goes on                     |

Periods are numbered without gaps from 1970; the number alone says nothing about the calendar.
"""

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from countless.core.parameters import require_integer
from countless.errors import InvalidParameter, UnknownName

Per = Literal["minute", "hour", "day", "month"]
PERIODS: tuple[Per, ...] = get_args(Per)

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_LENGTH_S = {"minute": _MINUTE_S, "hour": _HOUR_S, "day": _DAY_S}
_ANCHOR_UNIT_S = {"minute": 1, "hour": _MINUTE_S, "day": _HOUR_S}
_ANCHORS = {
    "minute": (0, 59, "the second at which minutes begin"),
    "hour": (0, 59, "the minute at which hours begin"),
    "day": (0, 23, "the hour at which days begin"),
    "month": (1, 31, "the day on which months begin, or the last of a shorter month"),
}
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_S = 8000 * 365 * _DAY_S  # what comes later counts as this; what comes before period 0, as its beginning
_NOT_EVERYWHERE_THE_SAME = ("localtime", "posixrules", "right/", "posix/")


def require_per(per: object) -> Per:
    """Return `per`; raise UnknownName unless it is one of PERIODS."""
    for period in PERIODS:
        if period == per:
            return period
    raise UnknownName("per", per, PERIODS)


def require_zone(tz: object) -> ZoneInfo:
    """The time zone of this name; raise InvalidParameter if there is none."""
    allowed = "the name of a time zone that this machine knows, such as UTC or Europe/Berlin"
    if not isinstance(tz, str) or tz.startswith(_NOT_EVERYWHERE_THE_SAME):
        raise InvalidParameter("tz", tz, allowed)
    try:
        return ZoneInfo(tz)
    except (LookupError, ValueError, OSError):  # unknown; not a relative path; a folder, or too long
        raise InvalidParameter("tz", tz, allowed) from None


def require_anchor(anchor: object, per: str) -> int:
    """Return `anchor`, or its default for None; raise InvalidParameter unless periods of this kind can begin there."""
    first, last, meaning = _ANCHORS[per]
    if anchor is None:
        return first
    if isinstance(anchor, bool) or not isinstance(anchor, int) or not first <= anchor <= last:
        raise InvalidParameter("anchor", anchor, f"an integer from {first} to {last}, {meaning}")
    return anchor


def require_calendar(per: str | None, tz: object, anchor: object, without_periods: str) -> None:
    """Raise InvalidParameter unless these describe a calendar, or are the defaults for something without periods."""
    require_zone(tz)
    if per is not None:
        require_anchor(anchor, require_per(per))
    elif tz != "UTC" or anchor is not None:
        field, value = ("tz", tz) if anchor is None else ("anchor", anchor)
        raise InvalidParameter(field, value, message=f"{field} can't be used for {without_periods}")


class Calendar:
    """The periods of one kind. Every moment belongs to exactly one.

    >>> berlin = Calendar("day", "Europe/Berlin")
    >>> summer_time_begins = berlin.period_at(1_743_336_000)  # on 30 March 2025
    >>> start, end = berlin.bounds(summer_time_begins)
    >>> (end - start) // 3600
    23
    """

    def __init__(self, per: str, tz: str = "UTC", anchor: int | None = None) -> None:
        self.per = require_per(per)
        self.tz = tz
        self._zone = require_zone(tz)
        self.anchor = require_anchor(anchor, per)
        self._start = lru_cache(maxsize=8)(self._find_start)
        self._first_s = self._start(0)
        self._latest = (0, 0, 0)  # the period that was found last, after its bounds

    def __repr__(self) -> str:
        return f"Calendar({self.per!r}, {self.tz!r}, {self.anchor})"

    def same_as(self, other: "Calendar") -> bool:
        return (self.per, self.tz, self.anchor) == (other.per, other.tz, other.anchor)

    def period_at(self, unix_s: float) -> int:
        """The period of this moment, in seconds since 1970."""
        second = int(min(max(self._first_s, unix_s), _LAST_S))
        start, end, period = self._latest
        if start <= second < end:
            return period
        period = self._shown(second + self._phase(second))
        while self._start(period + 1) <= second:  # clocks went back over a beginning, or skipped a whole period
            period += 1
        self._latest = (*self.bounds(period), period)
        return period

    def bounds(self, period: int) -> tuple[int, int]:
        """The first moment of a period, and the first one after it. Equal if the zone skipped it."""
        last = self._shown(_LAST_S) + 1
        require_integer("period", period, 0)
        if period > last:
            raise InvalidParameter("period", period, f"an integer from 0 to {last}")
        return self._start(period), self._start(period + 1)

    def next(self, period: int) -> int:
        """The period after this one, without those that the zone skipped."""
        return self.period_at(self.bounds(period)[1])

    def previous(self, period: int) -> int:
        """The period before this one, without those that the zone skipped."""
        return self.period_at(self.bounds(period)[0] - 1)

    def local_time(self, unix_s: float) -> str:
        """ISO 8601, in the calendar's time zone."""
        return datetime.fromtimestamp(unix_s, self._zone).isoformat()

    def moment(self, text: str) -> float:
        """Seconds since 1970 of an ISO 8601 time or date; without an offset, by the clocks of the time zone. Raises
        ValueError if it is none.

        >>> Calendar("hour", "Europe/Berlin").moment("2025-03-30") == Calendar("hour").moment("2025-03-29T23:00Z")
        True
        """
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=self._zone)).timestamp()

    # Below, a reading is what the local clock shows, as seconds since the clock showed 1970-01-01 00:00. Of minutes and
    # hours only the part counts that is smaller than a period: the reading then follows the clocks of UTC, but for it.

    def _phase(self, second: int) -> int:
        """The reading minus the moment."""
        moment = _FIRST_MOMENT + timedelta(seconds=second)  # fromtimestamp() fails on some systems before 1970
        offset = moment.astimezone(self._zone).utcoffset()
        seconds = 0 if offset is None else offset.days * _DAY_S + offset.seconds
        return seconds if self.per in ("day", "month") else seconds % _LENGTH_S[self.per]

    def _shown(self, reading: int) -> int:
        """The period that the reading belongs to, if clocks never went back."""
        if self.per != "month":
            return (reading - self.anchor * _ANCHOR_UNIT_S[self.per]) // _LENGTH_S[self.per]
        day = date.fromordinal(_EPOCH + reading // _DAY_S)
        month = (day.year - 1970) * 12 + day.month - 1
        return month if reading >= self._beginning(month) else month - 1

    def _beginning(self, period: int) -> int:
        """The reading at which a period begins."""
        if self.per != "month":
            return period * _LENGTH_S[self.per] + self.anchor * _ANCHOR_UNIT_S[self.per]
        first = _first_of_month(period)
        return (min(first + self.anchor, _first_of_month(period + 1)) - 1 - _EPOCH) * _DAY_S

    def _find_start(self, period: int) -> int:
        """The first moment whose reading is at least the beginning of the period."""
        beginning = self._beginning(period)
        second = beginning - _LENGTH_S.get(self.per, _DAY_S)  # the reading is still smaller: phases are below a day
        while (phase := self._phase(second)) + second < beginning:
            second = self._next_change(second, beginning - phase)
        return second

    def _next_change(self, second: int, end: int) -> int:
        """The first moment after `second` at which the zone has another offset; `end` if there is none before it."""
        phase = self._phase(second)
        while second < end:
            later = min(second + _HOUR_S, end)
            if self._phase(later) != phase:
                while later - second > 1:
                    middle = (second + later) // 2
                    if self._phase(middle) == phase:
                        second = middle
                    else:
                        later = middle
                return later
            second = later
        return end


calendar_of = lru_cache(maxsize=256)(Calendar)  # thousands of counters and budgets share a few


def _first_of_month(month: int) -> int:
    return date(1970 + month // 12, month % 12 + 1, 1).toordinal()
