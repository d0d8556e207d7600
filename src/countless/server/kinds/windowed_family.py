"""A family with windows: each window is a family of its own, and all labels of those that are kept are known.

| window        | kept as                                                                                        |
|---------------|------------------------------------------------------------------------------------------------|
| open          | a `TrackedFamily` with its sites                                                                |
| closed        | the same, without sites: a site that was away may open it again                                |
| not kept      | its labels and its total are added to `dropped_windows`, a family without sites under the name |

What is counted over all windows is the sum of the closed ones and of those that were dropped, which changes once in a
window, and of the open ones.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from math import inf
from typing import NamedTuple

from countless.core.answer import State
from countless.core.family.answer import LabelCounts, sum_of
from countless.core.family.coordinator import MAX_LABELS, FamilyCoordinator
from countless.core.family.messages import Steps
from countless.core.family.rule import FamilyRule
from countless.core.messages import SiteId
from countless.core.periods.window import TotalAnswer, WindowRule, total_answer
from countless.errors import InvalidParameter
from countless.server.kinds.family import SCHEMES, FamilyReader, SavedFamily, TrackedFamily
from countless.server.sessions.closed_windows import ClosedWindows
from countless.server.sessions.lost_sites import Loss, LostSites
from countless.server.sessions.periodic import Periodic
from countless.server.sessions.published_windows import PublishedWindows
from countless.server.sessions.readable import MessageCount
from countless.server.sessions.tracked import OnChange
from countless.server.storage.health import SaveHealth
from countless.server.storage.rows import Publish, Rows
from countless.wire.keys import ALL, FAMILY, Key, calendar_text

MAX_SUMS = 4  # of spans of several windows: today, yesterday ...


class _Published(NamedTuple):
    windows: PublishedWindows
    kept: dict[int, TrackedFamily]  # open and closed
    settled: LabelCounts  # of all windows that are not open


class WindowedFamily(FamilyReader, Periodic[TrackedFamily]):
    """`FamilyObjects` opens, closes and drops windows. Each is saved like a family."""

    def __init__(
        self,
        name: str,
        rule: FamilyRule,
        wall_clock: Callable[[], float],
        saved: SavedFamily | None = None,
        health: SaveHealth | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        self.rule = rule
        first, before = (0, 0) if saved is None else (saved.fields.round, saved.fields.total)
        key = Key(FAMILY, name, calendar_text(self.window_rule.calendar), ALL)
        super().__init__(key, wall_clock, first, before, health, on_change)
        self.traffic = MessageCount(before, saved is None, wall_clock())
        self.dropped_windows = TrackedFamily(
            Key(FAMILY, name), rule, saved, health, part_of=self, traffic=self.traffic, on_change=on_change
        )
        self.kept: dict[int, TrackedFamily] = {}
        self._settled: LabelCounts  # of all windows that are not open
        self._settle()
        self._sums: dict[tuple[int, ...], LabelCounts] = {}  # of closed windows, by their periods
        self._all: LabelCounts | None = None  # of what is published, once a reader has asked for it
        self._shown = self._snapshot()
        self._published = self._shown.windows
        self._show(self._shown)

    @classmethod
    def continuing(cls, before: TrackedFamily, rule: FamilyRule, wall_clock: Callable[[], float]) -> "WindowedFamily":
        """Windows for a family that has none, while no site counts it.

        They are kept from the next edge on: of the present one only a part will be counted in a window.
        """
        saved = SavedFamily(before.fields()._replace(rule=rule, round=0), dict(before.coordinator.known), {})
        after = cls(before.name, rule, wall_clock, saved, before.health, before.on_change)
        present = after.present
        if before.known_total:
            after.first = after.dropped_windows.coordinator.round = after.calendar.next(present)
        after.traffic = after.dropped_windows.traffic = before.traffic
        # Until it is saved, readers see what was saved last.
        unsaved = PublishedWindows(0, {present: before.published_answer}, after.closed, after.losses, after.first, 0)
        after._show(_Published(unsaved, {present: before}, sum_of([], MAX_LABELS)))
        return after

    def load(self, windows: Iterable[tuple[int, SavedFamily]]) -> None:
        """Given oldest first. Those that have ended, and have no sites, are closed."""
        closed: list[tuple[int, int]] = []
        losses: dict[int, Loss] = {}
        for period, saved in windows:
            window = self.kept[period] = self._window(period, saved.fields.rule, saved)
            if saved.fields.lost:
                losses[period] = window.loss = Loss(saved.fields.lost, saved.fields.lost_until)
            if saved.members or not self.first <= period < self.present:
                self.open[period] = window
            else:
                window.seal()
                closed.append((period, window.known_total))
        self.closed, self.losses = ClosedWindows(closed), LostSites(losses)
        self._settle()
        self.traffic.counted_before = self.known_total
        self._show(self._snapshot())

    @property
    def window_rule(self) -> WindowRule:
        if self.rule.windows is None:
            raise InvalidParameter("windows", None, "the rule of a family with windows")
        return self.rule.windows

    @property
    def windows_kept(self) -> int:
        return self.rule.windows_kept

    # Reading what is saved

    @property
    def published_answer(self) -> TotalAnswer:
        """The total over all windows."""
        return self._total._replace(state=self.state)

    @property
    def state(self) -> State:
        return self.health.shown(self._total.state)

    @property
    def published(self) -> LabelCounts:
        """Of all windows, also those that are not kept any more."""
        if self._all is None:
            _, kept, settled = self._shown
            self._all = sum_of([settled, *(kept[period].published for period in self._published.open)], MAX_LABELS)
        return self._all

    def labels_between(self, start: float, end: float) -> LabelCounts:
        """Of the windows of a span, which has all of a window or nothing of it."""
        _, kept, _ = self._shown
        periods = (period for period in kept if period >= self._published.first)
        inside = [each for each in periods if start <= self.calendar.bounds(each)[0] < end]
        closed = tuple(each for each in inside if each not in self._published.open)
        parts = [
            self._sum_of_closed(closed),
            *(kept[each].published for each in inside if each in self._published.open),
        ]
        counts = sum_of(parts, MAX_LABELS)
        is_known = self.kept_from is None or start >= self.kept_from
        return counts if is_known else counts._replace(missing=self.most_not_kept)

    def _sum_of_closed(self, periods: tuple[int, ...]) -> LabelCounts:
        """A day of hours with 10,000 labels takes a tenth of a second, so it is computed once in a window."""
        if periods not in self._sums:
            if len(self._sums) >= MAX_SUMS:
                self._sums.clear()
            self._sums[periods] = sum_of((self._shown.kept[each].published for each in periods), MAX_LABELS)
        return self._sums[periods]

    @property
    def coordinator(self) -> FamilyCoordinator:
        """Of the latest window that is open."""
        return self.open[max(self.open)].coordinator if self.open else self.dropped_windows.coordinator

    def _members_of(self, period: int) -> list[SiteId]:
        return self.open[period].coordinator.site_ids if period in self.open else []

    # Windows

    @property
    def saved(self) -> list[TrackedFamily]:
        """All families that are."""
        return [self.dropped_windows, *self.kept.values()]

    def reconfigure(self, rule: FamilyRule) -> None:
        """With the same calendar. Windows that are open keep the rule that they have."""
        self.rule = self.dropped_windows.rule = rule
        self.sweep_at = -inf

    def open_window(self, period: int) -> TrackedFamily:
        """One that is not open."""
        window = self.kept.get(period)
        if window is None:
            before = max((each for each in self.open if each < period), default=None)
            expected_sites = 0 if before is None else self.open[before].coordinator.sites
            window = self._window(period, replace(self.rule, windows=None), expected_sites=expected_sites)
            self.kept[period] = window
        else:
            window.unseal()
            self.closed = self.closed.without(period)
            self._settle()
        self.open[period] = window
        self.sweep_at = min(self.sweep_at, self.calendar.bounds(period)[1])
        window.mark()
        return window

    def _window(
        self, period: int, rule: FamilyRule, saved: SavedFamily | None = None, expected_sites: int = 0
    ) -> TrackedFamily:
        return TrackedFamily(
            self.key.window(period),
            rule,
            saved,
            self.health,
            expected_sites=expected_sites,
            part_of=self,
            traffic=self.traffic,
            on_change=self.on_change,
        )

    def close_window(self, period: int) -> TrackedFamily:
        window = super().close_window(period)
        if period < self.first:
            self._drop(period)
        self._settled = sum_of([self._settled, _counts_of(window)], MAX_LABELS)
        return window

    def drop_windows(self) -> list[int]:
        dropped = super().drop_windows()
        for period in dropped:
            self._drop(period)
        return dropped

    def _drop(self, period: int) -> None:
        window, into = self.kept.pop(period), self.dropped_windows.coordinator
        into.absorb(window.coordinator.known, window.known_total)
        into.round = self.first

    def _settle(self) -> None:
        parts = [self.dropped_windows, *(self.kept[period] for period in self.closed)]
        self._settled = sum_of(map(_counts_of, parts), MAX_LABELS)

    def move_losses(self, periods: list[int]) -> set[int]:
        changed = super().move_losses(periods)
        for period in changed:
            self.kept[period].loss = self.losses.get(period)
        return changed

    def lose_site(self, oldest: int, newest: int) -> None:
        super().lose_site(oldest, newest)
        self.kept[oldest].loss = self.losses.get(oldest)
        self.kept[oldest].mark()

    # Publishing

    def mark(self, windows: Iterable[int] = ()) -> None:
        """Its fields have changed, and these windows of it."""
        self.dropped_windows.mark()
        for period in windows:
            self.kept[period].mark()

    def take(self, rows: Rows) -> Publish:
        """Its rows are those of `dropped_windows`."""
        return partial(self._publish, self._snapshot())

    def _publish(self, shown: _Published) -> None:
        self._show(shown)
        if shown.windows.closed is self.closed:  # otherwise one of them may have been opened again, and have changed
            for period in self.closed:
                self.kept[period].seal()
        self.notify()  # a label may be watched, too

    def _snapshot(self) -> _Published:
        answers = {period: self.open[period].snapshot()[1] for period in sorted(self.open)}
        windows = PublishedWindows(0, answers, self.closed, self.losses, self.first, self.before)
        return _Published(windows, dict(self.kept), self._settled)

    def _show(self, shown: _Published) -> None:
        if shown.windows.closed is not self._published.closed:
            self._sums.clear()
        self._shown, self._published, self._all = shown, shown.windows, None
        settled, answers = shown.windows.dropped + shown.windows.closed.total, [*shown.windows.open.values()]
        scheme = SCHEMES[self.rule.kind]
        self._total = total_answer(settled, answers, 0, alpha=self.rule.epsilon, delta=0.0, scheme=scheme)


def _counts_of(window: TrackedFamily) -> LabelCounts:
    """Of a window without sites, so that everything is known."""
    return LabelCounts(window.coordinator.known, window.known_total, Steps(0, 0), State.EXACT)


AnyFamily = TrackedFamily | WindowedFamily
