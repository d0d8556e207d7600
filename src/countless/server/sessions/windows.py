"""A counter with windows: its open windows, each tracked like a counter, its closed ones, and the total over all.

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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from math import inf

from countless.core.answer import Answer
from countless.core.coordinator import Coordinator, PersistentState
from countless.core.estimator import RoundContext
from countless.core.messages import SiteId
from countless.core.windows.rule import WindowRule
from countless.core.windows.window import TotalAnswer, Window, bounds_of
from countless.errors import InvalidParameter
from countless.server.sessions.closed_windows import ClosedWindows
from countless.server.sessions.counter import Counter, PlanKey, Traffic, Watched
from countless.server.sessions.labels import client_key
from countless.server.sessions.losses import Loss, Losses
from countless.server.sessions.published_windows import PublishedWindows
from countless.server.storage.base import Config, CounterFields, WindowFields, WindowKey
from countless.server.storage.save_health import SaveHealth
from countless.wire.windows import window_group, window_name

MAX_AHEAD = 8  # open windows beyond the next one: clocks may be ahead, but a wrong one must not open any number of them
_NEW = CounterFields(0, 0, 0)


class WindowedCounter(Watched):
    """`CounterRegistry` opens, closes and drops windows, and saves them."""

    def __init__(
        self,
        name: str,
        config: Config,
        wall_clock: Callable[[], float],
        fields: CounterFields = _NEW,
        health: SaveHealth | None = None,
    ) -> None:
        super().__init__(health)
        self.name = name
        self.config = config
        self.calendar = self.rule.calendar
        self.group = window_group(name, self.calendar)
        self.open: dict[int, Counter] = {}  # by period
        self.closed = ClosedWindows()
        self.losses = Losses()
        self.first, self._estimate, self.before = fields
        self.traffic = Traffic(self.before, new=fields is _NEW)
        self.sweep_at = -inf  # by our clock: when `WindowSweeps` has to look at it
        self._wall_clock = wall_clock
        self._idle: Counter | None = None
        self._answers: dict[int, Answer] = {}  # of open windows, as they are being saved
        self._published = self._snapshot()
        self._total: TotalAnswer | None = None  # of what is published, once a reader has asked for it

    def load(
        self,
        windows: Iterable[tuple[int, WindowFields]],
        saved: Mapping[str, tuple[Config, PersistentState]],
    ) -> None:
        """`windows` are given oldest first; open ones have their state in `saved`, under their wire names."""
        closed: list[tuple[int, int]] = []
        losses: dict[int, Loss] = {}
        for period, fields in windows:
            if fields.lost:
                losses[period] = Loss(fields.lost, fields.lost_until)
            if fields.total is None:
                config, state = saved[self.window_name(period)]
                self.open[period] = self._tracker(period, config, fields.floor, state)
            else:
                closed.append((period, fields.total))
        self.closed, self.losses = ClosedWindows(closed), Losses(losses)
        self._answers = {period: tracker.coordinator.answer for period, tracker in self.open.items()}
        self.traffic.counted_before = self.known_total
        self._published = self._snapshot()

    @property
    def rule(self) -> WindowRule:
        if self.config.windows is None:
            raise InvalidParameter("windows", None, "the rule of a counter with windows")
        return self.config.windows

    def window_name(self, period: int) -> str:
        return window_name(self.name, self.calendar, period)

    # Reading what is saved

    @property
    def published_answer(self) -> TotalAnswer:
        """The total over all windows."""
        if self._total is None:
            self._total = self._published.total(self.config)
        return self._total._replace(state=self.health.shown(self._total.state))

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
    def dropped(self) -> int:
        """The total of the windows before `kept_from`."""
        return self._published.dropped

    @property
    def most_not_kept(self) -> int:
        """How many events the windows before `kept_from` have, at most: a site that was away may open one again."""
        again = (answer for period, answer in self._published.open.items() if period < self._published.first)
        return self.dropped + sum(int(bounds_of(answer)[1]) for answer in again)

    @property
    def complete_until(self) -> int:
        """All sites have finished the windows before this moment; some may have been lost."""
        return self.calendar.bounds(min(self._published.open, default=self.present))[0]

    def windows(self, limit: int | None = None) -> list[Window]:
        """The present window, and all others that are kept and may have a count; the youngest `limit`, oldest first."""
        periods = self._published.periods(self.present)
        return self._windows(periods if limit is None else periods[-limit:] if limit > 0 else [])

    def windows_between(self, start: float, end: float) -> list[Window]:
        """Those of `windows` that overlap this span, in seconds since 1970."""
        first, last = self.calendar.period_at(start), self.calendar.period_at(end)
        listed = self._windows(self._published.periods(self.present, first, last))
        return [window for window in listed if window.start < end and window.end > start]

    @property
    def closed_windows(self) -> ClosedWindows:
        return self._published.closed

    def unsettled_windows(self, first: int) -> list[Window]:
        """The present one and those that are not closed; from `first` on, also those that have lost sites."""
        published, present = self._published, self.present
        periods = {present, *published.open, *published.losses.periods(first, present)}
        return self._windows(sorted(period for period in periods if period >= published.first))

    def window(self, period: int) -> Window | None:
        """None: it is not kept any more. A window of which nothing is known is empty."""
        return None if period < self._published.first else self._windows([period])[0]

    def _windows(self, periods: list[int]) -> list[Window]:
        return list(self._published.windows(periods, self.calendar, self.present, self._members_of))

    def sites_waited_for(self, period: int) -> list[str]:
        """Sites that have not finished this window, or an earlier one: for operators."""
        ids = {site_id for each in self.open if each <= period for site_id in self._members_of(each)}
        return sorted({str(site_id.site) for site_id in ids})

    def _members_of(self, period: int) -> list[SiteId]:
        tracker = self.open.get(period)
        known = tracker.coordinator.saved_state.known if tracker else ()
        return [client_key(self.window_name(period), site_id)[1] for site_id, _ in known]

    # Reading for operators

    @property
    def recovering(self) -> bool:
        return any(tracker.recovering for tracker in self.open.values())

    @property
    def known_total(self) -> int:
        """The sum of all counts received: never more than the true total."""
        return self.before + self.closed.total + sum(each.known_total for each in self.open.values())

    @property
    def departed(self) -> int:
        """The part of `known_total` that no present member of a window has counted."""
        return self.before + self.closed.total + sum(each.departed for each in self.open.values())

    @property
    def tracker(self) -> Counter:
        """That of the present window, or of the latest one that is open; an unused one if there is none."""
        present = self.present
        period = max((each for each in self.open if each <= present), default=max(self.open, default=None))
        if period is not None:
            return self.open[period]
        if self._idle is None:
            self._idle = self._tracker(present, replace(self.config, windows=None), 0)
        return self._idle

    @property
    def coordinator(self) -> Coordinator:
        return self.tracker.coordinator

    def next_plan(self) -> tuple[PlanKey, RoundContext] | None:
        return self.tracker.next_plan()

    # Windows

    def reconfigure(self, config: Config) -> None:
        """With the same calendar. Windows that are open keep the config that they have."""
        self.config, self.sweep_at, self._total = config, -inf, None

    def require_near(self, period: int) -> None:
        """Raise InvalidParameter for a window that is too far ahead of our clock."""
        self.calendar.bounds(period)
        next_period = self.calendar.next(self.present)
        ahead = sum(each > next_period for each in self.open)
        if period > next_period and period not in self.open and ahead >= MAX_AHEAD:
            now = self.calendar.local_time(int(self._wall_clock()))
            raise InvalidParameter(
                "counter",
                self.window_name(period),
                f"a window that begins soon: check the clock of the site; the coordinator's shows {now}",
            )

    def open_window(self, period: int) -> Counter:
        """Its tracker, for a window that is not open."""
        total = self.closed.get(period)
        floor = self.rule.floor_after(self.closed.last_before(period) or 0)
        before = max((each for each in self.open if each < period), default=None)
        expected_sites = 1 if before is None else max(1, self.open[before].coordinator.sites)
        config = replace(self.config, windows=None)
        if total is None:
            tracker = self._tracker(period, config, floor, expected_sites=expected_sites)
        else:
            tracker = self._tracker(period, config, floor, PersistentState(0, total, total, ()), expected_sites)
            tracker.coordinator.recover()  # there is no site to which it could send anything
            tracker.recovering = False
            self.closed = self.closed.without(period)
        self.open[period] = tracker
        self.sweep_at = min(self.sweep_at, self.calendar.bounds(period)[1])
        return tracker

    def _tracker(
        self,
        period: int,
        config: Config,
        floor: int,
        saved_state: PersistentState | None = None,
        expected_sites: int = 1,
    ) -> Counter:
        return Counter(
            self.window_name(period),
            config,
            saved_state,
            window=WindowKey(self.name, period),
            floor=floor,
            expected_sites=expected_sites,
            traffic=self.traffic,
            health=self.health,
        )

    def ended(self) -> list[int]:
        """Windows that can be closed, oldest first."""
        present = self.present
        return sorted(each for each in self.open if each < present and not self.open[each].coordinator.sites)

    def members_before_first(self) -> set[SiteId]:
        """Sites that are members of windows that are not kept any more."""
        return {site_id for period in self.open if period < self.first for site_id in self._members_of(period)}

    def close_window(self, period: int) -> Counter:
        """Its tracker, which is not needed any more."""
        tracker = self.open.pop(period)
        if period < self.first:
            self.before += tracker.known_total
        else:
            self.closed = self.closed.added(period, tracker.known_total)
        return tracker

    def drop_windows(self) -> list[int]:
        """Drop the oldest closed windows, if there are more than the rule keeps. Returns their periods."""
        surplus = max(0, len(self.closed) - self.rule.windows_kept)
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
            if self.losses.get(period) is not None and self.window_fields(period) is None:
                later = min((each for each in (*self.closed, *self.open) if each > period), default=None)
                self.losses = self.losses.moved(period, later)
                changed.update(() if later is None else [later])
        return changed

    def lose_site(self, oldest: int, newest: int) -> None:
        """A session that was a member of these windows, and of none before them, was retired.

        A wrong clock must not make all windows of the next years incomplete: the site is lost to as many windows after
        the last known one as are kept.
        """
        last = max(self.closed.last, *self.open) + self.rule.windows_kept
        self.losses = self.losses.added(oldest, Loss(1, min(max(newest, self.present), last)))

    # Saving and publishing

    def fields(self) -> CounterFields:
        return CounterFields(self.first, self._estimate, self.before)

    def window_fields(self, period: int) -> WindowFields | None:
        tracker, total = self.open.get(period), self.closed.get(period)
        if tracker is None and total is None:
            return None
        return WindowFields(tracker.floor if tracker else 0, total, *self.losses.get(period) or (0, 0))

    def note(self, period: int, answer: Answer) -> None:
        """The answer of an open window, which is about to be saved."""
        self._answers[period] = answer

    def publication(self) -> Callable[[], None]:
        return partial(self._publish, self._snapshot())

    def _publish(self, published: PublishedWindows) -> None:
        if published != self._published:
            self._published, self._total = published, None
            self.notify()

    def _snapshot(self) -> PublishedWindows:
        """When a window is closed, the sum over all windows may fall: the estimate does not."""
        self._answers = {period: self._answers[period] for period in sorted(self.open)}
        estimate = self.before + self.closed.total + sum([answer.estimate for answer in self._answers.values()])
        if estimate > self._estimate:
            self._estimate = estimate
        answers = dict(self._answers)
        return PublishedWindows(self._estimate, answers, self.closed, self.losses, self.first, self.before)


AnyCounter = Counter | WindowedCounter
AnyAnswer = Answer | TotalAnswer
