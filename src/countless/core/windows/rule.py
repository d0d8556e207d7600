"""The rule of a counter with windows: when a window begins, how accurate small totals are, how many are kept."""

from dataclasses import dataclass

from countless.core.calendar import Calendar, calendar_of, require_calendar, require_per
from countless.core.parameters import require_integer
from countless.errors import InvalidParameter

DEFAULT_KEEP = {"minute": 1440, "hour": 744, "day": 400, "month": 60}  # a day, a month, a year, five years
MAX_FLOOR = 1 << 128  # like `add`: more is not a float on some way
# The default floor is the last closed window divided by this. A smaller floor makes a burst of reports after an edge:
# more than three times the average at 1,000 sites (design/measurements/windows.md).
FLOOR_SHARE = 3


@dataclass(frozen=True, slots=True)
class WindowRule:
    """Every event belongs to one window: the minute, hour, day or month that the clock of its site shows.

    `tz` and `anchor` say when a window begins: at that second of a minute, minute of an hour, hour of a day or day of a
    month, by the clocks of the time zone. None is the first. The answer of the open window is within
    alpha * max(n, floor) of its count n. Without a `floor` it is a third of the last closed window. After `keep` closed
    windows the oldest is dropped; None is DEFAULT_KEEP.

    >>> WindowRule("day", tz="Europe/Berlin").calendar
    Calendar('day', 'Europe/Berlin', 0)
    """

    per: str
    tz: str = "UTC"
    anchor: int | None = None
    floor: int | None = None
    keep: int | None = None

    def __post_init__(self) -> None:
        require_per(self.per)
        require_calendar(self.per, self.tz, self.anchor, "a counter without windows (per)")
        if self.floor is not None:
            require_integer("floor", self.floor, 0)
            if self.floor > MAX_FLOOR:
                raise InvalidParameter("floor", self.floor, f"at most 2**128 = {MAX_FLOOR}")
        if self.keep is not None:
            require_integer("keep", self.keep, 1)

    @property
    def calendar(self) -> Calendar:
        return calendar_of(self.per, self.tz, self.anchor)

    @property
    def windows_kept(self) -> int:
        return DEFAULT_KEEP[self.per] if self.keep is None else self.keep

    def floor_after(self, last_closed: int) -> int:
        """The floor of a window that is opened when the last closed one has this total; 0 if there is none."""
        return last_closed // FLOOR_SHARE if self.floor is None else self.floor
