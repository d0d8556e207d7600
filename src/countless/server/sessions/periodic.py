"""The windows of a counter, or of a family: those that are open, each with a tracker of its own, and the closed ones.

| step         | when                                                                                                 |
|--------------|------------------------------------------------------------------------------------------------------|
| opened       | a site joins it, by its own clock: up to the next window of our clock, or one of MAX_AHEAD later ones |
| closed       | our clock is past its end, and no site is a member any more: only its total is kept                  |
| opened again | another site joins it: one that was away has counted in it, too                                      |
| dropped      | there are more closed ones than the rule keeps: the total is added to `before`                       |

A site that is a member of a window may have counted in every later one. So a closed window is exact only if no earlier
one is open: until then readers see `incomplete`. A site that is retired is *lost* to all windows from the oldest that
it was a member of to the present one (`losses.py`), and these stay `incomplete`.
"""

from abc import abstractmethod
from collections.abc import Callable
from itertools import islice
from math import inf
from typing import Generic, Protocol, TypeVar

from countless.core.messages import SiteId
from countless.core.periods.spans import SpanCount, count_of_span
from countless.core.periods.window import TotalAnswer, Window
from countless.errors import InvalidParameter
from countless.server.sessions.closed_windows import ClosedWindows
from countless.server.sessions.lost_sites import Loss, LostSites
from countless.server.sessions.published_windows import PublishedWindows
from countless.server.sessions.readable import MessageCount, SpanReader, WindowReader
from countless.server.sessions.tracked import OnChange, Watched
from countless.server.storage.health import SaveHealth
from countless.wire.keys import Key, parse_calendar

MAX_AHEAD = 8  # open windows beyond the next one: clocks may be ahead, but a wrong one must not open any number of them


class HasSites(Protocol):
    @property
    def sites(self) -> int: ...


class WindowTracker(Protocol):
    """What an open window is tracked with."""

    @property
    def name(self) -> str: ...

    @property
    def coordinator(self) -> HasSites: ...

    @property
    def known_total(self) -> int: ...


Tracker = TypeVar("Tracker", bound=WindowTracker)


class Periodic(Watched, Generic[Tracker]):
    """The owner opens, closes and drops windows, and saves them. Readers see what was published last."""

    traffic: MessageCount
    _published: PublishedWindows

    def __init__(
        self,
        key: Key,
        wall_clock: Callable[[], float],
        first: int,
        before: int,
        health: SaveHealth | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        super().__init__(health, on_change)
        self.key = key  # of all windows together
        self.name = key.name
        self.calendar = parse_calendar(key.calendar)
        self.open: dict[int, Tracker] = {}  # by period
        self.closed = ClosedWindows()
        self.losses = LostSites()
        self.first = first  # the first period that is kept
        self.before = before  # the total of earlier ones
        self.sweep_at = -inf  # by our clock: when `Objects` has to look at it
        self._wall_clock = wall_clock

    @property
    @abstractmethod
    def windows_kept(self) -> int:
        """After so many closed windows the oldest is dropped."""

    @property
    @abstractmethod
    def published_answer(self) -> TotalAnswer:
        """The total over all windows."""

    @abstractmethod
    def _members_of(self, period: int) -> list[SiteId]:
        """The sites that have not left this window; none if it is not open."""

    # Reading what is saved

    @property
    def spans(self) -> SpanReader:
        return self

    @property
    def windows(self) -> WindowReader:
        return self

    def now(self) -> float:
        """What our clock shows."""
        return self._wall_clock()

    @property
    def present(self) -> int:
        """The period of our clock."""
        return self.calendar.period_at(self._wall_clock())

    @property
    def kept_from(self) -> int | None:
        """The windows of earlier moments, in seconds since 1970, are only in the total. None: all are kept."""
        return self.calendar.bounds(self._published.first)[0] if self._published.first else None

    @property
    def first_window(self) -> int | None:
        """When the first window began that has a count; None if there is none, or if it is not kept."""
        closed = next(iter(self._published.closed), None)
        first = min((*self._published.open, *(() if closed is None else (closed,))), default=None)
        return None if first is None or self._published.first else self.calendar.bounds(first)[0]

    @property
    def dropped(self) -> int:
        """The total of the windows before `kept_from`."""
        return self._published.dropped

    @property
    def most_not_kept(self) -> int:
        """How many events the windows before `kept_from` have, at most: a site that was away may open one again."""
        again = (answer for period, answer in self._published.open.items() if period < self._published.first)
        return self.dropped + sum(int(answer.upper) for answer in again)

    @property
    def complete_until(self) -> int:
        """All sites have finished the windows before this moment; some may have been lost."""
        return self.calendar.bounds(min(self._published.open, default=self.present))[0]

    def youngest(self, limit: int | None = None) -> list[Window]:
        """The present window, and all others that are kept and may have a count: at most `limit`, oldest first."""
        periods = self._published.periods(self.present)
        return self._windows(periods if limit is None else periods[-limit:] if limit > 0 else [])

    def windows_between(self, start: float, end: float) -> list[Window]:
        """Windows that overlap this span, in seconds since 1970."""
        first, last = self.calendar.period_at(start), self.calendar.period_at(end)
        listed = self._windows(self._published.periods(self.present, first, last))
        return [window for window in listed if window.start < end and window.end > start]

    def span(self, start: float, end: float, now: float) -> SpanCount:
        return count_of_span(self, start, end, now, self.windows_between(start, end))

    @property
    def closed_windows(self) -> ClosedWindows:
        return self._published.closed

    def unsettled_windows(self, first: int) -> list[Window]:
        """The present one and those that are not closed; from `first` on, also those that have lost sites. The counts
        of closed ones are 0 here: they are in `closed_windows`.
        """
        published, present = self._published, self.present
        periods = {present, *published.open, *published.losses.periods(first, present)}
        return [
            window if published.closed.get(window.period) is None else window._replace(lower=0, estimate=0, upper=0)
            for window in self._windows(sorted(period for period in periods if period >= published.first))
        ]

    def window(self, period: int) -> Window | None:
        """None: it is not kept any more. A window of which nothing is known is empty."""
        return None if period < self._published.first else self._windows([period])[0]

    def _windows(self, periods: list[int]) -> list[Window]:
        return list(self._published.windows(periods, self.calendar, self.present, self._members_of))

    def sites_waited_for(self, period: int) -> list[str]:
        """Sites that have not finished this window, or an earlier one: for operators."""
        ids = {site_id for each in self.open if each <= period for site_id in self._members_of(each)}
        return sorted({str(site_id.site) for site_id in ids})

    @property
    def known_total(self) -> int:
        """The sum of all counts received: never more than the true total."""
        return self.before + self.closed.total + sum(each.known_total for each in self.open.values())

    # Windows

    def require_near(self, period: int) -> None:
        """Raise InvalidParameter for a window that is too far ahead of our clock."""
        self.calendar.bounds(period)
        next_period = self.calendar.next(self.present)
        ahead = sum(each > next_period for each in self.open)
        if period > next_period and period not in self.open and ahead >= MAX_AHEAD:
            now = self.calendar.local_time(int(self._wall_clock()))
            raise InvalidParameter(
                "counter",
                self.key.window(period).in_words,
                f"a window that begins soon: check the clock of the site; the coordinator's shows {now}",
            )

    def ended(self) -> list[int]:
        """Windows that can be closed, oldest first."""
        present = self.present
        return sorted(each for each in self.open if each < present and not self.open[each].coordinator.sites)

    def members_before_first(self) -> set[SiteId]:
        """Sites that are members of windows that are not kept any more."""
        return {site_id for period in self.open if period < self.first for site_id in self._members_of(period)}

    @abstractmethod
    def open_window(self, period: int) -> Tracker:
        """One that is not open. It is marked for the next save."""

    def close_window(self, period: int) -> Tracker:
        """Its tracker, which is not needed any more."""
        tracker = self.open.pop(period)
        if period < self.first:
            self.before += tracker.known_total
        else:
            self.closed = self.closed.added(period, tracker.known_total)
        return tracker

    def drop_windows(self) -> list[int]:
        """Drop the oldest closed windows, if there are more than the rule keeps. Returns their periods."""
        surplus = max(0, len(self.closed) - self.windows_kept)
        dropped = list(islice(self.closed, surplus))
        if dropped:
            remaining = self.closed.without_oldest(surplus)
            self.before += self.closed.total - remaining.total
            self.closed = remaining
            self.first = min(each for each in (*self.closed, *self.open) if each > dropped[-1])
        return dropped

    def move_losses(self, periods: list[int]) -> set[int]:
        """These windows have been dropped or closed. Returns the periods whose fields have changed."""
        changed = set[int]()
        for period in periods:
            if self.losses.get(period) is not None and not self._is_kept(period):
                later = min((each for each in (*self.closed, *self.open) if each > period), default=None)
                self.losses = self.losses.moved(period, later)
                changed.update(() if later is None else [later])
        return changed

    def lose_site(self, oldest: int, newest: int) -> None:
        """A session that was a member of these windows, and of none before them, was retired.

        A wrong clock must not make all windows of the next years incomplete: the site is lost to as many windows after
        the last known one as are kept.
        """
        last = max(self.closed.last, *self.open) + self.windows_kept
        self.losses = self.losses.added(oldest, Loss(1, min(max(newest, self.present), last)))

    def _is_kept(self, period: int) -> bool:
        return period in self.open or self.closed.get(period) is not None
