"""The periods of a budget at one site: which is the present one, by a clock that may jump, and the state of each.

The state of a period is made when the clock first shows it, or a little earlier (`prepare`). It is kept while the
period is the present one, the last one before it, or a later one: a hold is settled in the period in which it was
opened, and a clock that is put back returns to a state that is still there.

The owner must hand in the states that are dropped. If the clock goes back to such a period, its state is made again.
Until the coordinator has acknowledged what was handed in, it may still know what was granted to the first one: then a
state that has forgotten its spending would spend that twice, and the owner must make one that admits nothing.
"""

from collections.abc import Callable
from math import inf
from typing import Generic, TypeVar

from countless.core.calendar import Calendar

MAX_LEAD_S = 60.0  # how long before its start a period is prepared, at most
LEAD_SHARE = 0.1  # of the period before it
MIN_LEAD = 0.25  # of the lead: the last site still has time for a round trip

State = TypeVar("State")


class Periods(Generic[State]):
    """`new` makes the state of a period. Without a calendar there is one period, 0, for ever.

    >>> periods = Periods(Calendar("minute"), lambda period: f"state of {period}")
    >>> periods.enter(600_000_059.9), periods.present
    ([], 'state of 10000000')
    >>> periods.enter(600_000_120.0), periods.enter(600_000_060.0), periods.present
    ([], [], 'state of 10000001')
    """

    def __init__(self, calendar: Calendar | None, new: Callable[[int], State]) -> None:
        self.calendar = calendar
        self.states: dict[int, State] = {}
        self.period = 0  # the present one
        self.starts_at, self.ends_at = -inf, inf  # in seconds since 1970
        self._new = new
        self._prepared = 0  # the period that was prepared last
        if calendar is None:
            self.states[0] = new(0)

    @property
    def present(self) -> State:
        return self.states[self.period]

    def enter(self, now: float) -> list[State]:
        """Make the period of this moment the present one. Returns the states that are dropped."""
        if self.calendar is None or (self.starts_at <= now < self.ends_at and self.states):
            return []
        period = self.calendar.period_at(now)
        starts_at, ends_at = self.calendar.bounds(period)
        self._state(period)
        self.starts_at = inf  # if an exception comes in between, the next call does it again
        self.period, self.ends_at = period, ends_at
        self.starts_at = starts_at
        earlier = sorted(period for period in self.states if period < self.period)[:-1]
        return [self.states.pop(period) for period in earlier]

    def prepare(self, now: float, needed: bool) -> State | None:
        """The time has come to prepare the period after this moment. Its new state, if it is needed and not there."""
        if self.calendar is None:
            return None
        self._prepared = self.calendar.next(self.calendar.period_at(now))
        if not needed or self._prepared in self.states:
            return None
        return self._state(self._prepared)

    def seconds_to_prepare(self, now: float, spread: float) -> float:
        """Until `prepare` should be called. Sites with a different `spread`, from 0 to 1, do it at different times."""
        if self.calendar is None:
            return inf
        period = self.calendar.period_at(now)
        if self.calendar.next(period) == self._prepared:
            period = self._prepared
        start, end = self.calendar.bounds(period)
        lead = min(MAX_LEAD_S, LEAD_SHARE * (end - start)) * (MIN_LEAD + (1 - MIN_LEAD) * spread)
        return max(0.0, end - lead - now)

    def _state(self, period: int) -> State:
        if period not in self.states:
            self.states[period] = self._new(period)
        return self.states[period]
