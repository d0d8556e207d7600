"""A counter with windows: each open window is tracked like a counter, the total is the sum over all windows."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from math import inf
from typing import NamedTuple

from countless.core.answer import Answer
from countless.core.coordinator import Coordinator, PersistentState
from countless.core.estimator import RoundContext
from countless.core.messages import SiteId
from countless.core.periods.window import TotalAnswer, WindowRule
from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter
from countless.server.kinds.counter import CounterFields, TrackedCounter, config_of, state_of
from countless.server.sessions.closed_windows import ClosedWindows
from countless.server.sessions.lost_sites import Loss, LostSites
from countless.server.sessions.periodic import Periodic
from countless.server.sessions.published_windows import PublishedWindows
from countless.server.sessions.readable import MessageCount, RoundReader
from countless.server.sessions.tracked import OnChange
from countless.server.settings import Config
from countless.server.storage.health import SaveHealth
from countless.server.storage.rows import KeyRows, Publish, Rows, alone, value_of
from countless.wire.keys import ALL, COUNTER, Key, calendar_text


class WindowFields(NamedTuple):
    floor: int
    total: int | None  # None: it is open
    lost: int = 0  # sites that ended without saying how much they had counted, in this window ...
    lost_until: int = 0  # ... and the later ones up to this


class WindowedCounter(Periodic[TrackedCounter]):
    """`CounterObjects` opens, closes and drops windows.

    It has `config` and `state`, like a `TrackedCounter`. A window has a row of its own, and while it is open also
    the rows of a counter:

    | row      | of each | value          |
    |----------|---------|----------------|
    | `window` | window  | `WindowFields` |
    """

    def __init__(
        self,
        name: str,
        config: Config,
        wall_clock: Callable[[], float],
        saved: CounterFields | None = None,
        health: SaveHealth | None = None,
        on_change: OnChange | None = None,
        *,
        rng: RandomSource,
    ) -> None:
        fields = saved or CounterFields(0, 0, 0)
        self._largest = fields.published
        self.config = config
        self._rng = rng
        self._changed_config = self._changed_fields = False
        self._changed_windows: set[int] = set()
        key = Key(COUNTER, name, calendar_text(self.window_rule.calendar), ALL)
        super().__init__(key, wall_clock, fields.round, fields.departed, health, on_change)
        self.traffic = MessageCount(fields.departed, saved is None, wall_clock())
        self._idle: TrackedCounter | None = None
        self._answers: dict[int, Answer] = {}  # of open windows, as they are being saved
        self._published = self._snapshot()
        self._total: TotalAnswer | None = None  # of what is published, once a reader has asked for it

    @classmethod
    def continuing(cls, before: TrackedCounter, config: Config, wall_clock: Callable[[], float]) -> "WindowedCounter":
        """Windows for a counter that has none, while no site counts it.

        They are kept from the next edge on: of the present one only a part will be counted in a window.
        """
        counted, answer = before.known_total, before.published_answer
        after = cls(before.name, config, wall_clock, health=before.health, on_change=before.on_change, rng=before.rng)
        present = after.present
        if counted:
            after.first, after.before = after.calendar.next(present), counted
            after._largest = before.coordinator.published
        after.traffic = before.traffic
        # Until it is saved, readers see what was saved last.
        open_windows = {present: answer}
        after._published = PublishedWindows(
            before.largest_published, open_windows, after.closed, after.losses, after.first, 0
        )
        return after

    def load(self, windows: Iterable[tuple[Key, KeyRows]]) -> None:
        """Given oldest first."""
        closed: list[tuple[int, int]] = []
        losses: dict[int, Loss] = {}
        for key, rows in windows:
            fields, period = value_of(key, rows, "window", WindowFields), key.period
            if fields.lost:
                losses[period] = Loss(fields.lost, fields.lost_until)
            if fields.total is None:
                self.open[period] = self._tracker(period, config_of(key, rows), fields.floor, state_of(key, rows))
            else:
                closed.append((period, fields.total))
        self.closed, self.losses = ClosedWindows(closed), LostSites(losses)
        self._answers = {period: tracker.coordinator.answer for period, tracker in self.open.items()}
        self.traffic.counted_before = self.known_total
        self._published = self._snapshot()

    @property
    def window_rule(self) -> WindowRule:
        if self.config.windows is None:
            raise InvalidParameter("windows", None, "the rule of a counter with windows")
        return self.config.windows

    @property
    def windows_kept(self) -> int:
        return self.window_rule.windows_kept

    # Reading what is saved

    @property
    def published_answer(self) -> TotalAnswer:
        """The total over all windows."""
        if self._total is None:
            self._total = self._published.total(self.config)
        return self._total._replace(state=self.health.shown(self._total.state))

    @property
    def largest_published(self) -> float:
        """The largest total so far."""
        return self._published.largest

    def _members_of(self, period: int) -> list[SiteId]:
        tracker = self.open.get(period)
        known = tracker.coordinator.saved_state.known if tracker else ()
        return [site_id._replace(part="") for site_id, _ in known]

    # Reading for operators

    @property
    def recovering(self) -> bool:
        return any(tracker.recovering for tracker in self.open.values())

    @property
    def departed(self) -> int:
        """The part of `known_total` that no present member of a window has counted."""
        return self.before + self.closed.total + sum(each.departed for each in self.open.values())

    @property
    def tracker(self) -> TrackedCounter:
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

    @property
    def rounds(self) -> RoundReader:
        return self

    def next_context(self) -> RoundContext | None:
        return self.tracker.next_context()

    # Windows

    def reconfigure(self, config: Config) -> None:
        """With the same calendar. Windows that are open keep the config that they have."""
        self.config, self.sweep_at, self._total = config, -inf, None

    def open_window(self, period: int) -> TrackedCounter:
        """Its tracker, for a window that is not open."""
        total = self.closed.get(period)
        floor = self.window_rule.floor_after(self.closed.last_before(period) or 0)
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
        tracker.mark_config()
        self.mark([period])
        return tracker

    def _tracker(
        self,
        period: int,
        config: Config,
        floor: int,
        saved_state: PersistentState | None = None,
        expected_sites: int = 1,
    ) -> TrackedCounter:
        return TrackedCounter(
            self.key.window(period),
            config,
            saved_state,
            part_of=self,
            floor=floor,
            expected_sites=expected_sites,
            traffic=self.traffic,
            health=self.health,
            on_change=self.on_change,
            rng=self._rng,
        )

    # Saving and publishing

    def mark(self, windows: Iterable[int] = ()) -> None:
        """Its fields have changed, and these windows of it."""
        self._changed_fields = True
        self._changed_windows.update(windows)
        self.on_change(self)

    def mark_config(self) -> None:
        """It is new, or has another config."""
        self._changed_config = True
        self.mark()

    def take(self, rows: Rows) -> Publish:
        publish = partial(self._publish, self._snapshot())  # before `state`: it may raise the largest estimate
        if self._changed_fields:
            own = rows.setdefault(self.key, {})
            own["state"] = alone(CounterFields(self.first, self._largest, self.before))
            if self._changed_config:
                own["config"] = alone(self.config)
            for period in self._changed_windows:
                rows.setdefault(self.key.window(period), {})["window"] = alone(self._window_fields(period))
            self._changed_config = self._changed_fields = False
            self._changed_windows = set()
        return publish

    def _window_fields(self, period: int) -> WindowFields | None:
        tracker, total = self.open.get(period), self.closed.get(period)
        if tracker is None and total is None:
            return None
        return WindowFields(tracker.floor if tracker else 0, total, *self.losses.get(period) or (0, 0))

    def lose_site(self, oldest: int, newest: int) -> None:
        super().lose_site(oldest, newest)
        self.mark([oldest])

    def note(self, period: int, answer: Answer) -> None:
        """The answer of an open window, which is about to be saved."""
        self._answers[period] = answer

    def _publish(self, published: PublishedWindows) -> None:
        if published != self._published:
            self._published, self._total = published, None
            self.notify()

    def _snapshot(self) -> PublishedWindows:
        self._answers = {period: self._answers[period] for period in sorted(self.open)}
        # What each open window saves as its largest estimate, so that a restart finds the same sum.
        largest = self.before + self.closed.total + sum([answer.published for answer in self._answers.values()])
        if largest > self._largest:
            self._largest = largest
        answers = dict(self._answers)
        return PublishedWindows(self._largest, answers, self.closed, self.losses, self.first, self.before)


AnyCounter = TrackedCounter | WindowedCounter
