"""The windows of a counter: their rule, and what readers see of each and of all together."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from countless.core.answer import Answer, State, whole, worst_state
from countless.core.calendar import Calendar, calendar_of, require_calendar, require_per
from countless.core.messages import SiteName
from countless.core.parameters import require_integer
from countless.errors import InvalidParameter


class WindowState(StrEnum):
    """The stage of a window: how much it may still change."""

    OPEN = "open"  # it has not ended
    INCOMPLETE = "incomplete"  # it has ended; sites have not finished it, or were lost with events of it
    CLOSED = "closed"  # all its sites have finished it: it is exact


class Window(NamedTuple):
    """The count of one window: lower <= truth <= upper. With lost sites, the truth may be more."""

    period: int  # its number in the counter's calendar
    start: int  # seconds since 1970
    end: int
    lower: float
    estimate: float
    upper: float
    state: WindowState
    lost: int = 0  # sites that ended without saying how much they had counted
    # Sites that have not finished it yet, or an earlier one; while it has not ended, those that cannot be reached.
    waiting: int = 0

    @property
    def exact(self) -> bool:
        return self.lower == self.upper and not self.lost and not self.waiting


class TotalAnswer(NamedTuple):
    """The total over all windows, including windows that are no longer kept. It has the fields of an `Answer`.

    The bounds are the sums of the windows' bounds. The estimate is the largest sum of estimates so far, but never
    outside of these bounds.
    """

    estimate: float
    lower: float
    upper: float
    alpha: float
    delta: float
    state: State
    round: int  # of the youngest window
    sites: int
    scheme: str
    silent: tuple[SiteName, ...] = ()

    @property
    def bounds(self) -> tuple[float, float]:
        """`lower` and `upper`."""
        return self.lower, self.upper

    def as_dict(self) -> dict[str, object]:
        """The fields that everyone may see, to log or send as JSON."""
        fields = {name: value for name, value in self._asdict().items() if name not in ("round", "silent")}
        numbers = zip(("estimate", "lower", "upper"), whole(self.estimate, *self.bounds), strict=True)
        return fields | dict(numbers) | {"state": str(self.state)}

    def contains(self, total: int) -> bool:
        """True if `total` is between the bounds."""
        return self.lower <= total <= self.upper

    def __str__(self) -> str:
        return f"{self.estimate:,} (from {self.lower:,.0f} to {self.upper:,.0f}; {self.state}, all windows)"


_ROUNDING = 2.0**-50  # more than the addition of some floats can lose


def total_answer(
    settled: int, answers: Sequence[Answer | TotalAnswer], published: float, *, alpha: float, delta: float, scheme: str
) -> TotalAnswer:
    """The sum of what is known exactly and of the answers of open windows, given oldest first.

    `published` is the largest sum so far. When a window is closed, the sum may fall.
    """
    bounds = [answer.bounds for answer in answers]
    lower, upper = (settled + sum(each) for each in zip(*bounds, strict=True)) if bounds else (settled, settled)
    if upper > 1 / _ROUNDING and lower != upper:
        lower, upper = lower * (1 - _ROUNDING), upper * (1 + _ROUNDING)
    last = answers[-1] if answers else None
    largest = max(published, settled + sum(answer.estimate for answer in answers))
    return TotalAnswer(
        min(max(largest, lower), upper),
        lower,
        upper,
        alpha,
        delta,
        worst_state(answer.state for answer in answers),
        last.round if last else 0,
        max((answer.sites for answer in answers), default=0),
        last.scheme if last else scheme,
        tuple(dict.fromkeys(site for answer in answers for site in answer.silent)),
    )


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
