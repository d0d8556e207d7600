"""Names of windows on the wire and in stored files: a window of a counter is a counter of its own.

    requests@hour:490123                         hours of UTC
    requests{route="/a"}@day,Europe/Berlin,6:20408    days that begin at six, of a series

The number is that of `Calendar.period_at`. The part before it is the same for all windows of a counter.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from countless.core.calendar import PERIODS, Calendar, calendar_of, require_anchor

_WINDOW = re.compile(
    rf"(?P<series>.+)@(?P<per>{'|'.join(PERIODS)})(?:,(?P<tz>[A-Za-z0-9/_+-]+),(?P<anchor>[0-9]{{1,2}}))?"
    r":(?P<period>[0-9]{1,12})",
    re.DOTALL,
)


class WindowName(NamedTuple):
    series: str  # the counter, with its labels
    per: str
    tz: str
    anchor: int | None
    period: int

    @property
    def calendar(self) -> Calendar:
        """Raises InvalidParameter if this machine does not know the time zone, or the anchor is out of range."""
        return calendar_of(self.per, self.tz, self.anchor)

    @property
    def group(self) -> str:
        """The same for all windows of the counter."""
        return window_group(self.series, self.calendar)

    def __str__(self) -> str:
        return f"{self.group}:{self.period}"


def window_group(series: str, calendar: Calendar) -> str:
    """What the names of all windows of a counter begin with.

    >>> window_group("requests", Calendar("day", "Europe/Berlin", 6)), window_group("requests", Calendar("hour"))
    ('requests@day,Europe/Berlin,6', 'requests@hour')
    """
    usual = calendar.tz == "UTC" and calendar.anchor == require_anchor(None, calendar.per)
    return f"{series}@{calendar.per}" + ("" if usual else f",{calendar.tz},{calendar.anchor}")


def window_name(series: str, calendar: Calendar, period: int) -> str:
    return f"{window_group(series, calendar)}:{period}"


@lru_cache(maxsize=4096)
def parse_window(name: str) -> WindowName | None:
    """None: it is not the name of a window.

    >>> parse_window("requests@hour:490123")
    WindowName(series='requests', per='hour', tz='UTC', anchor=None, period=490123)
    >>> parse_window("requests") is None
    True
    """
    found = _WINDOW.fullmatch(name)
    if found is None:
        return None
    tz, anchor = found["tz"] or "UTC", found["anchor"]
    return WindowName(found["series"], found["per"], tz, None if anchor is None else int(anchor), int(found["period"]))


def shard_name(name: str) -> str:
    """The name that decides on the shard: all windows of a counter are in the same one."""
    window = parse_window(name)
    return name if window is None else window.series
