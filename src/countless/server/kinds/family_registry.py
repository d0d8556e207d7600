"""All families by name, their windows, and the limits on how many there may be. Every change is marked for the next
commit.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from itertools import groupby

from countless.core.family.rule import VALUES, FamilyRule
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter, UnknownName
from countless.server.kinds.family import SavedFamily, TrackedFamily
from countless.server.kinds.label_shares import MEMBER_BYTES, LabelShares, LabelUse, label_bytes, newest
from countless.server.kinds.windowed_family import AnyFamily, WindowedFamily
from countless.server.sessions.beginning import begin_windows, require_no_site, require_same_calendar
from countless.server.sessions.periodic import MAX_OPEN_PER_COUNTER
from countless.server.sessions.shares import UNLIMITED, Shares
from countless.server.settings import Settings
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import KeyRows
from countless.server.tuning import Tuning
from countless.wire.keys import (
    FAMILY,
    Key,
    calendar_fields,
    is_plain,
    parse_calendar,
    require_one,
    validate_name,
)


class FamilyRegistry:
    """`by_name` is what people see. `trackers` are what is saved, and where sites are counted: families without windows
    under their names.
    """

    def __init__(
        self,
        counters: Callable[[], Container[str]],
        settings: Settings,
        pipeline: CommitPipeline,
        wall_clock: Callable[[], float],
        tuning: Tuning,
    ) -> None:
        self.by_name: dict[str, AnyFamily] = {}
        self.windowed: dict[str, WindowedFamily] = {}  # those that have windows
        self.trackers: dict[str, TrackedFamily] = {}
        self._counters = counters  # the names of all counters
        self._pipeline = pipeline
        self._wall_clock = wall_clock
        self._max_families = settings.max_counters
        self._shares = Shares[str](self._max_families, settings.max_share)
        most_windows = MAX_OPEN_PER_COUNTER * self._max_families
        self._window_shares = Shares[str](most_windows, settings.max_share)
        self.label_shares = LabelShares(settings.max_label_mb, settings.max_share, tuning.labels_nearly_full)
        self._windows_kept = tuning.family_windows

    def load(self, saved: Iterable[tuple[Key, KeyRows]]) -> None:
        """Everything that a store has, in the order of its keys: windows come after their family."""
        for name, group in groupby(saved, key=lambda each: each[0].name):
            own = iter(group)
            family = SavedFamily.of(*next(own))
            self._add(self._new(name, family.fields.rule, family))
            if name in self.windowed:
                self.windowed[name].load((key.period, SavedFamily.of(key, rows)) for key, rows in own)
                self.trackers.update(self.windowed[name].trackers)
        for tracker in self.trackers.values():
            self.label_shares.add_labels(tracker.key, UNLIMITED, tracker.coordinator.known)
            for site_id, member in tracker.coordinator.members():
                self.label_shares.add(
                    LabelUse(tracker.key, site_id), UNLIMITED, MEMBER_BYTES + label_bytes(member.counts)
                )

    def _new(self, name: str, rule: FamilyRule, saved: SavedFamily | None = None) -> AnyFamily:
        if rule.windows is None:
            return TrackedFamily(
                Key(FAMILY, name),
                rule,
                saved,
                self._pipeline.health,
                on_change=self._pipeline.changed,
                wall_clock=self._wall_clock,
            )
        return WindowedFamily(name, rule, self._wall_clock, saved, self._pipeline.health, self._pipeline.changed)

    def _add(self, family: AnyFamily) -> None:
        self.by_name[family.name] = family
        if isinstance(family, WindowedFamily):
            self.windowed[family.name] = family
            self.trackers.update(family.trackers)
        else:
            self.trackers[family.name] = family

    def get(self, name: str) -> AnyFamily:
        """Of a reader who asks for quantiles."""
        try:
            return self.by_name[name]
        except KeyError:
            distributions = [each.name for each in self.by_name.values() if each.rule.kind == VALUES]
            raise UnknownName("distribution", name, distributions) from None

    def require_no_family(self, key: Key) -> None:
        """Raise InvalidParameter for a counter, a series or a window whose counter is a family."""
        if key.root in self.by_name:
            message = f"{key.root!r} is a family: count it with family=True"
            raise InvalidParameter("counter", str(key), message=message)

    # Where sites are counted

    def tracker_for(self, key: Key, rule: FamilyRule, peer: str) -> TrackedFamily:
        """The family, or the window, with this key. The first site creates it; the smallest epsilon of all sites is in
        force. A rejected key changes nothing.
        """
        require_one(key)
        name = key.name
        family = self.by_name.get(name)
        if family is None:
            if key.is_window:
                parse_calendar(key.calendar).bounds(key.period)
                rule = replace(rule, windows=WindowRule(*calendar_fields(key.calendar), keep=self._windows_kept))
            family = self.create(name, rule, peer)
        _require_same_windows(family, key)
        if (family.rule.kind, family.rule.accuracy) != (rule.kind, rule.accuracy):
            kinds = {"labels": "a counter with labels", "values": f"a distribution of accuracy {family.rule.accuracy}"}
            message = f"{name!r} is {kinds[family.rule.kind]}: use it as that, or delete it first"
            raise InvalidParameter("family", name, message=message)
        if isinstance(family, TrackedFamily):
            return family
        return family.open.get(key.period) or self._open_window(family, key.period, peer)

    def create(self, name: str, rule: FamilyRule, peer: str = UNLIMITED) -> AnyFamily:
        validate_name(name, "family")
        if name != Key(FAMILY, name).root or not is_plain(name):
            raise InvalidParameter("family", name, "a name without labels and windows")
        if name in self.by_name:
            raise InvalidParameter("family", name, "a name that is not taken")
        if name in self._counters():
            allowed = "another name, or family=False: there is a counter of this name; delete it to get a family"
            raise InvalidParameter("family", name, allowed)
        if len(self.by_name) >= self._max_families:
            raise InvalidParameter("family", name, f"one of at most {self._max_families} (max_counters)")
        if self._shares.is_full(peer):
            allowed = f"one of at most {self._shares.most} of one token (max_share of max_counters)"
            raise InvalidParameter("family", name, allowed)
        family = self._new(name, rule)
        self._add(family)
        self._shares.add(name, peer)
        self.trackers[name].mark()
        return family

    def configure(self, name: str, rule: FamilyRule) -> None:
        """Give a family windows, from the next edge on, or keep another number of them."""
        family = self.by_name[name]
        if rule.windows is None:
            return
        if isinstance(family, WindowedFamily):
            require_same_calendar(family.calendar, rule.windows)
            family.reconfigure(rule)
        else:
            require_no_site("family", name, rule.windows, family.coordinator.site_ids)
            self._pipeline.forget(family)
            after = WindowedFamily.continuing(family, rule, self._wall_clock)
            self._add(after)
            after.dropped_windows.mark_labels(after.dropped_windows.coordinator.known)  # perhaps not saved yet
            family.notify()
        self.trackers[name].mark()

    def _open_window(self, family: WindowedFamily, period: int, peer: str) -> TrackedFamily:
        family.require_near(period)
        opened = sum(len(each.open) for each in self.windowed.values())
        if opened >= MAX_OPEN_PER_COUNTER * self._max_families or self._window_shares.is_full(peer):
            message = "too many windows are open at once (max_counters)"
            raise InvalidParameter("family", str(family.key.window(period)), message=message)
        window = family.open_window(period)
        self.trackers[window.name] = window
        self._window_shares.add(window.name, peer)
        window.mark()
        return window

    # Windows, for `WindowSweeps`

    def close_window(self, family: WindowedFamily, period: int) -> None:
        labels = len(family.dropped_windows.coordinator.known)
        window = family.close_window(period)
        self._window_shares.remove(window.name)
        if period < family.first:
            self._dropped(family, [window], labels)
        self._changed(family, family.move_losses([period]))

    def drop_windows(self, family: WindowedFamily) -> None:
        kept, labels = dict(family.kept), len(family.dropped_windows.coordinator.known)
        dropped = family.drop_windows()
        self._dropped(family, [kept[period] for period in dropped], labels)
        if dropped:
            self._changed(family, family.move_losses(dropped))

    def _dropped(self, family: WindowedFamily, windows: list[TrackedFamily], labels_before: int) -> None:
        """`labels_before`: how many labels of dropped windows there were before."""
        new = set(newest(family.dropped_windows.coordinator.known, labels_before))
        for window in windows:
            del self.trackers[window.name]
            self.label_shares.drop_window(window.key, window.coordinator.known, family.dropped_windows.key, new)
            self._drop(window)
            family.dropped_windows.mark_labels(window.coordinator.known)

    def _changed(self, family: WindowedFamily, periods: Iterable[int]) -> None:
        family.dropped_windows.mark()
        for period in periods:
            family.kept[period].mark()

    def _drop(self, family: TrackedFamily) -> None:
        self._pipeline.forget(family)
        self._pipeline.drop(family.key)

    def remove(self, name: str) -> None:
        family = self.by_name.pop(name)
        tracker = self.trackers.pop(name)
        self.label_shares.remove_labels(Key(FAMILY, name))
        if isinstance(family, WindowedFamily):
            del self.windowed[name]
            for window in family.kept.values():
                del self.trackers[window.name]
                self.label_shares.remove_labels(window.key)
                self._window_shares.remove(window.name)
                self._pipeline.forget(window)
            self._pipeline.forget(family)
            self._pipeline.drop(family.key)  # all windows
        self._shares.remove(name)
        self._drop(tracker)
        self._pipeline.forget_tombstones(family.key, tracker.key)
        family.notify()


def _require_same_windows(family: AnyFamily, key: Key) -> None:
    windowed = family if isinstance(family, WindowedFamily) else None
    if not key.is_window and windowed is not None:
        per = windowed.calendar.per
        message = f"family {family.name!r} has windows: count it with per={per!r}"
        raise InvalidParameter("family", family.name, message=message)
    if key.calendar and windowed is None:
        wanted, *_ = calendar_fields(key.calendar)
        begin = begin_windows(family.name, wanted)
        message = f"family {family.name!r} has no windows: count it without per; {begin} starts some"
        raise InvalidParameter("per", wanted, message=message)
    if windowed is not None and windowed.key.calendar != key.calendar:
        allowed = f"{windowed.calendar!r}, as the family {family.name!r} has them; to change that, delete it"
        raise InvalidParameter("windows", repr(parse_calendar(key.calendar)), allowed)
