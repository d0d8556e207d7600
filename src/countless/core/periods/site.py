"""The windows of a counter, or the periods of a budget, at one site: which is the present one, and the state of each.

| moment                                          | what happens                                                     |
|-------------------------------------------------|------------------------------------------------------------------|
| shortly before the end of the present period    | the state of the next one is made (`prepare`)                    |
| the clock shows another period                  | events and requests belong to that one (`enter`)                 |
| some time after the end of a window             | it is finished (`finish`): the owner delivers its count          |
| another period of a budget is the present one   | all but the last one before it are dropped (`drop_earlier`)      |
| the clock is put back                           | to a state that is still there; of a budget, or to a new one     |
|                                                 | of a counter, or to the first window that is not finished        |

Windows are finished in ascending order, and a site never counts in a window that it has finished, whatever its clock
does. The sites of a counter prepare and finish at different times, so that the coordinator is not flooded at the edge.

A clock that jumps ahead for some minutes must not finish windows: the site could not return to them. So `finish`
compares the clock with a monotonic one, and believes a jump only after it has lasted a while.

A hold of a budget is settled in the period in which it was opened, so the period before the present one is kept, and so
are later ones, to which the clock was ahead. The owner must hand in what is dropped. If the clock goes back to such a
period, its state is made again. Until the coordinator has acknowledged what was handed in, it may still know what was
granted to the first one: then the owner must make one that admits nothing.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Generic, TypeVar

from countless.core.calendar import Calendar

# Sites prepare and finish within this time around an edge: a tenth of a window, at most a quarter of an hour.
MARGIN_S = {"minute": 6.0, "hour": 360.0, "day": 900.0, "month": 900.0}
BELIEVED_AFTER_S = 900.0  # a clock that has jumped; up to twice as long, by the spread
# The least and the most time before an edge at which sites prepare.
Leads = Mapping[str, tuple[float, float]]
MIN_LEAD = 0.25  # of the margin: the last site that prepares still has time for a round trip
WINDOW_LEADS_S: Leads = {per: (MIN_LEAD * margin, margin) for per, margin in MARGIN_S.items()}
# A coordinator that is away for less than this across an edge has granted a first share of the next period before.
_LONG_LEAD_S = (60.0, 120.0)
BUDGET_LEADS_S: Leads = {"minute": (20.0, 40.0), "hour": _LONG_LEAD_S, "day": _LONG_LEAD_S, "month": _LONG_LEAD_S}

State = TypeVar("State")


class Unending:
    """In place of a calendar: one period, 0."""

    def period_at(self, now: float) -> int:
        return 0

    def bounds(self, period: int) -> tuple[float, float]:
        return -inf, inf

    def next(self, period: int) -> int:
        return period + 1


class SitePeriods(Generic[State]):
    """`new` makes the state of a period. `spread`, from 0 to 1, is different for every site. With 0, no delay. Without
    a calendar there is one period, 0, which does not end.

    `now` is what the site's clock shows, in seconds since 1970; `monotonic` is a clock that never jumps. Pass `now` for
    both to believe every jump at once.

    >>> windows = SitePeriods(Calendar("minute"), lambda period: f"state of {period}", spread=0.5)
    >>> windows.enter(600_000_059.9)
    'state of 10000000'
    >>> windows.finish(600_000_062.9, monotonic=0.0), windows.enter(600_000_062.9)
    ({}, 'state of 10000001')
    >>> windows.finish(600_000_063.0, monotonic=0.1), windows.enter(600_000_059.9)
    ({10000000: 'state of 10000000'}, 'state of 10000001')
    """

    def __init__(
        self,
        calendar: Calendar | None,
        new: Callable[[int], State],
        spread: float = 0.0,
        leads: Leads = WINDOW_LEADS_S,
    ) -> None:
        self.calendar: Calendar | Unending = calendar or Unending()
        self.states: dict[int, State] = {}  # of the periods that are not finished or dropped
        self.watermark = 0  # all windows before this one are finished
        self.period = 0  # the one that was entered last
        self.starts_at, self.ends_at = inf, -inf  # while the clock is between these, `enter` changes nothing
        self._new = new
        self._spread = spread
        self._margin_s = 0.0 if calendar is None else MARGIN_S[calendar.per]
        least, most = (0.0, 0.0) if calendar is None else leads[calendar.per]
        self._lead_s = least + spread * (most - least)
        self._prepared = 0  # the period that was prepared last
        self._offset: float | None = None  # by how much the clock is ahead of the monotonic one, as far as we believe
        self._shown_offset, self._shown_since = 0.0, 0.0  # and as the clock shows it now

    def present_at(self, now: float) -> int:
        """The period of an event, or a request, at this moment."""
        return max(self.calendar.period_at(now), self.watermark)

    @property
    def present(self) -> State:
        """The state of the period that was entered last."""
        return self.states[self.period]

    def enter(self, now: float) -> State:
        """Make the period of this moment the present one. Returns its state, which is made if it is not there."""
        if not self.starts_at <= now < self.ends_at:
            period = self.present_at(now)
            starts_at, ends_at = map(float, self.calendar.bounds(period))  # comparing floats with a clock is faster
            self._state(period)
            self.starts_at = inf  # if an exception comes in between, the next call does it again
            self.period, self.ends_at = period, ends_at
            self.starts_at = -inf if period == self.watermark else starts_at
        return self.states[self.period]

    def prepare(self, now: float, needed: Callable[[State], bool]) -> int | None:
        """Make the state of the next period, and return that one, if it is time and the present state is needed."""
        if self.seconds_to_prepare(now) > 0:
            return None
        period = self.present_at(now)
        present, self._prepared = self.states.get(period), self.calendar.next(period)
        if self._prepared in self.states or present is None or not needed(present):
            return None
        self._state(self._prepared)
        return self._prepared

    def finish(self, now: float, monotonic: float) -> dict[int, State]:
        """The windows that end here, in ascending order. Their states are kept no longer."""
        finished: dict[int, State] = {}
        believed = self._believe(now, monotonic)
        for period in sorted(self.states):
            if believed < self._finish_at(period):
                break
            if period == self.period:
                self.starts_at, self.ends_at = inf, -inf
            self.watermark = self.calendar.next(period)
            finished[period] = self.states.pop(period)
        return finished

    def drop_earlier(self) -> list[State]:
        """The states of periods before the present one, but for the last. They are kept no longer."""
        earlier = sorted(period for period in self.states if period < self.period)[:-1]
        return [self.states.pop(period) for period in earlier]

    def seconds_to_prepare(self, now: float) -> float:
        period = self.present_at(now)
        if self.calendar.next(period) == self._prepared:
            period = self._prepared
        return max(0.0, self.calendar.bounds(period)[1] - self._lead_s - now)

    def seconds_to_finish(self, now: float, monotonic: float) -> float:
        """Until `finish` returns something, if the clock does not jump: look again within a minute. inf: nothing to."""
        if not self.states:
            return inf
        return max(0.0, self._finish_at(min(self.states)) - self._believe(now, monotonic))

    def _finish_at(self, period: int) -> float:
        return self.calendar.bounds(period)[1] + self._spread * self._margin_s

    def _believe(self, now: float, monotonic: float) -> float:
        """The moment that the clock shows, or an earlier one while it has jumped ahead."""
        offset = now - monotonic
        if self._offset is None:
            self._offset = self._shown_offset = offset
        if abs(offset - self._shown_offset) > self._margin_s:
            self._shown_since = monotonic
        self._shown_offset = offset
        has_lasted = monotonic - self._shown_since >= BELIEVED_AFTER_S * (1 + self._spread)
        if abs(offset - self._offset) > self._margin_s and not has_lasted:
            return min(now, monotonic + self._offset)
        self._offset = offset
        return now

    def _state(self, period: int) -> State:
        state = self.states.get(period)
        return self.states.setdefault(period, self._new(period)) if state is None else state
