"""The windows of a counter, or of a family: those that are open, each with a tracker of its own, and the closed ones.

| step         | when                                                                                                 |
|--------------|------------------------------------------------------------------------------------------------------|
| opened       | a site joins it, by its own clock: up to the next window of our clock, or one of MAX_AHEAD later ones |
| closed       | our clock is past its end, and no site is a member any more: only its total is kept                  |
| opened again | another site joins it: one that was away has counted in it, too                                      |
| dropped      | there are more closed ones than the rule keeps: the total is added to `before`                       |

A site that is a member of a window may have counted in every later one. So a closed window is exact only if no earlier
one is open: until then readers see `incomplete`. A site that is retired is *lost* to all windows from the oldest that
it was a member of to the present one (`lost_sites.py`), and these stay `incomplete`.

| row       | of                   | value                                             |
|-----------|----------------------|---------------------------------------------------|
| `spec`    | all windows together | the spec of the windows to come                   |
| `windows` | all windows together | `PeriodicFields`                                  |
| `window`  | each window          | `WindowFields`, beside the rows of what tracks it |
"""

from abc import abstractmethod
from collections.abc import Iterable
from functools import partial
from itertools import islice
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

from countless.core.messages import SiteId
from countless.core.periods.spans import SpanCount, count_of_span
from countless.core.periods.window import TotalAnswer, Window, WindowRule
from countless.errors import InvalidParameter
from countless.server.sessions.closed_windows import ClosedWindows, Fold
from countless.server.sessions.lost_sites import Loss, LostSites
from countless.server.sessions.published_windows import PublishedWindows
from countless.server.sessions.readable import MessageCount, SpanReader, WindowReader
from countless.server.sessions.tracked import Counted, S, Surroundings, Watched
from countless.server.storage.rows import KeyRows, Publish, Rows, alone, value_of
from countless.wire.keys import Key, parse_calendar

MAX_AHEAD = 8  # open windows beyond the next one: clocks may be ahead, but a wrong one must not open any number of them


class PeriodicFields(NamedTuple):
    first: int = 0  # the first period that is kept
    before: int = 0  # the total of earlier ones
    largest: int | float = 0  # the largest estimate of the total so far: it is never published smaller


class WindowFields(NamedTuple):
    total: int | None  # None: it is open
    lost: int = 0  # sites that ended without saying how much they had counted, in this window ...
    lost_until: int = 0  # ... and the later ones up to this


class Opening(NamedTuple):
    """The facts that are known when a window is opened."""

    expected_sites: int  # those of the window before it; 0: none is open
    floor: int  # see `WindowRule.floor_after`
    total: int | None  # of a closed window that is opened again


T = TypeVar("T", bound=Counted[Any])


class Periodic(Watched, Generic[T, S]):
    """The owner opens, closes and drops windows. Readers see what was published last. A kind says how one window is
    tracked, what is left of it, and with `fold` what several are together: a total is the sum of their totals.
    """

    fold: Fold = staticmethod(sum)

    def __init__(self, key: Key, spec: S, around: Surroundings) -> None:
        super().__init__(around)
        self.key = key  # of all windows together
        self.name = key.name
        self.spec = spec
        self.calendar = parse_calendar(key.calendar)
        self.open: dict[int, T] = {}  # by period
        self.closed = ClosedWindows(fold=self.fold)
        self.losses = LostSites()
        self.first, self.before, self._largest = PeriodicFields()
        self.sweep_at = -inf  # by our clock: when its kind has to look at it
        self.traffic = MessageCount(0, new=True, began=around.wall_clock())
        self._changed_spec = self._changed_fields = False
        self._changed_windows = set[int]()
        self._published = self._snapshot()
        self._total: TotalAnswer | None = None  # of what is published, once a reader has asked for it

    def load(self, rows: KeyRows, windows: Iterable[tuple[Key, KeyRows]]) -> None:
        """Load all windows together, and each of them, oldest first."""
        self.first, self.before, self._largest = value_of(self.key, rows, "windows", PeriodicFields)
        self.traffic = MessageCount(0, new=False, began=self.around.wall_clock())
        self._load_dropped(rows)
        closed: list[tuple[int, int]] = []
        losses: dict[int, Loss] = {}
        for key, own in windows:
            fields = value_of(key, own, "window", WindowFields)
            if fields.lost:
                losses[key.period] = Loss(fields.lost, fields.lost_until)
            if fields.total is None:
                self.open[key.period] = self._load_window(key, own)
            else:
                closed.append((key.period, fields.total))
                self._load_closed(key, own)
        self.closed, self.losses = ClosedWindows(closed, self.fold), LostSites(losses)
        self.traffic.counted_before = self.known_total
        self._show(self._snapshot())

    def begin(self, before: T) -> None:
        """Go on with what had no windows, while no site counts it. Windows are kept from the next edge on, because only
        a part of the present one will be counted in a window.
        """
        present = self.present
        if before.known_total:
            self.first, self.before = self.calendar.next(present), before.known_total
            self._largest = before.largest
        self.traffic = before.traffic
        # Until it is saved, readers see what was saved last.
        saved = {present: before.published_answer}
        self._show(PublishedWindows(before.largest_published, saved, self.closed, self.losses, self.first, 0))

    # What a kind has to say

    @abstractmethod
    def _open_window(self, key: Key, opening: Opening) -> T:
        """Make the tracker of a window that was not open."""

    @abstractmethod
    def _load_window(self, key: Key, rows: KeyRows) -> T:
        """Make the tracker of a window that is open."""

    def _load_closed(self, key: Key, rows: KeyRows) -> None:
        """Load a closed window, beside its total."""

    def _load_dropped(self, rows: KeyRows) -> None:
        """Load all windows that were dropped, beside their total."""

    def _closed_window(self, tracker: T) -> None:
        """It was closed, and is kept or not."""

    @property
    def saved(self) -> Iterable[T]:
        """Everything with rows of its own."""
        return self.open.values()

    def _dropped_window(self, period: int) -> None:
        """A closed window is not kept any more."""

    @abstractmethod
    def _total_of(self, published: PublishedWindows) -> TotalAnswer: ...

    # Reading what is saved

    @property
    def rule(self) -> WindowRule:
        if self.spec.windows is None:
            raise InvalidParameter("windows", None, "the rule of windows")
        return self.spec.windows

    @property
    def published_answer(self) -> TotalAnswer:
        """The total over all windows."""
        if self._total is None:
            self._total = self._total_of(self._published)
        return self._total._replace(state=self.health.shown(self._total.state))

    @property
    def largest_published(self) -> float:
        """The largest total so far."""
        return self._published.largest

    def _members_of(self, period: int) -> list[SiteId]:
        """The sites that have not left this window; none if it is not open."""
        tracker = self.open.get(period)
        return [] if tracker is None else [site_id._replace(part="") for site_id in tracker.members]

    @property
    def spans(self) -> SpanReader | None:
        return self

    @property
    def windows(self) -> WindowReader:
        return self

    def now(self) -> float:
        """The time that our clock shows."""
        return self.around.wall_clock()

    @property
    def present(self) -> int:
        """The period of our clock."""
        return self.calendar.period_at(self.around.wall_clock())

    @property
    def kept_from(self) -> int | None:
        """The windows of earlier moments, in seconds since 1970, are only in the total. None: all are kept."""
        return self.calendar.bounds(self._published.first)[0] if self._published.first else None

    @property
    def first_window(self) -> int | None:
        """The begin of the first window that has a count; None if there is none, or if it is not kept."""
        closed = next(iter(self._published.closed), None)
        first = min((*self._published.open, *(() if closed is None else (closed,))), default=None)
        return None if first is None or self._published.first else self.calendar.bounds(first)[0]

    @property
    def dropped(self) -> int:
        """The total of the windows before `kept_from`."""
        return self._published.dropped

    @property
    def most_not_kept(self) -> int:
        """The most events that windows before `kept_from` have: a site that was away may open one again."""
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

    @property
    def adds_up(self) -> bool:
        return self.fold is sum

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
        total: int = self.fold([self.before, self.closed.total, *(each.known_total for each in self.open.values())])
        return total

    # Windows

    def require_near(self, period: int) -> None:
        """Raise InvalidParameter for a window that is too far ahead of our clock."""
        self.calendar.bounds(period)
        next_period = self.calendar.next(self.present)
        ahead = sum(each > next_period for each in self.open)
        if period > next_period and period not in self.open and ahead >= MAX_AHEAD:
            now = self.calendar.local_time(int(self.around.wall_clock()))
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

    def reconfigure(self, spec: S) -> None:
        """With the same calendar. Windows that are open keep the spec that they have."""
        self.spec, self.sweep_at, self._total = spec, -inf, None
        self.mark_spec()

    def open_window(self, period: int) -> T:
        """One that is not open."""
        before = max((each for each in self.open if each < period), default=None)
        opening = Opening(
            0 if before is None else self.open[before].coordinator.sites,
            self.rule.floor_after(self.closed.last_before(period) or 0),
            self.closed.get(period),
        )
        if opening.total is not None:
            self.closed = self.closed.without(period)
        tracker = self.open[period] = self._open_window(self.key.window(period), opening)
        self.sweep_at = min(self.sweep_at, self.calendar.bounds(period)[1])
        tracker.mark_spec()
        self.mark([period])
        return tracker

    def close_window(self, period: int) -> T:
        """Return its tracker, which is not needed any more."""
        tracker = self.open.pop(period)
        is_kept = period >= self.first
        if is_kept:
            self.closed = self.closed.added(period, tracker.known_total)
        else:
            self.before = self.fold([self.before, tracker.known_total])
        self._closed_window(tracker)
        if not is_kept:
            self._dropped_window(period)
        self.mark({period} | self._move_losses([period]))
        return tracker

    def drop_windows(self) -> None:
        """The oldest closed ones, if there are more than the spec keeps."""
        surplus = max(0, len(self.closed) - self.spec.windows_kept)
        dropped = list(islice(self.closed, surplus))
        if not dropped:
            return
        self.before = self.fold([self.before, self.closed.total_between(dropped[0], dropped[-1])])
        self.closed = self.closed.without_oldest(surplus)
        self.first = min(each for each in (*self.closed, *self.open) if each > dropped[-1])
        for period in dropped:
            self._dropped_window(period)
        self.mark({*dropped} | self._move_losses(dropped))

    def _move_losses(self, periods: list[int]) -> set[int]:
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
        last = max(self.closed.last, *self.open) + self.spec.windows_kept
        self.losses = self.losses.added(oldest, Loss(1, min(max(newest, self.present), last)))
        self.mark([oldest])

    def _is_kept(self, period: int) -> bool:
        return period in self.open or self.closed.get(period) is not None

    # Saving and publishing

    def mark(self, windows: Iterable[int] = ()) -> None:
        """Its fields have changed, and these windows of it."""
        self._changed_fields = True
        self._changed_windows.update(windows)
        self.around.changed(self)

    def mark_spec(self) -> None:
        """It is new, or has another spec."""
        self._changed_spec = True
        self.mark()

    def take(self, rows: Rows) -> Publish:
        published = self._snapshot()  # before `windows`: it may raise the largest estimate
        if self._changed_fields:
            own = rows.setdefault(self.key, {})
            own["windows"] = alone(PeriodicFields(self.first, self.before, self._largest))
            if self._changed_spec:
                own["spec"] = alone(self.spec)
            for period in self._changed_windows:
                rows.setdefault(self.key.window(period), {})["window"] = alone(self._window_fields(period))
            self._changed_spec = self._changed_fields = False
            self._changed_windows = set()
        return partial(self._publish, published)

    def _window_fields(self, period: int) -> WindowFields | None:
        if not self._is_kept(period):
            return None
        return WindowFields(self.closed.get(period), *self.losses.get(period) or (0, 0))

    def _publish(self, published: PublishedWindows) -> None:
        if published != self._published:
            self._show(published)
            self.notify()

    def _show(self, published: PublishedWindows) -> None:
        self._published, self._total = published, None

    def _snapshot(self) -> PublishedWindows:
        windows = {period: self.open[period] for period in sorted(self.open)}
        answers = {period: each.taken for period, each in windows.items()}
        # What each open window saves as its largest estimate, oldest first, so that a restart finds the same sum.
        largest = self.fold([self.before, self.closed.total, *[each.largest for each in windows.values()]])
        if largest > self._largest:
            self._largest = largest
        return PublishedWindows(self._largest, answers, self.closed, self.losses, self.first, self.before)
