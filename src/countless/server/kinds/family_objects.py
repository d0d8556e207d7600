"""All families by name, and their windows."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby

from countless.core.family.rule import VALUES, FamilyRule
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter, UnknownName
from countless.server.kinds.family import SavedFamily, TrackedFamily
from countless.server.kinds.label_shares import MEMBER_BYTES, LabelShares, LabelUse, label_bytes, newest
from countless.server.kinds.windowed_family import AnyFamily, WindowedFamily
from countless.server.sessions.objects import (
    Names,
    Objects,
    require_no_site,
    require_same_calendar,
    require_same_windows,
)
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.sessions.shares import UNLIMITED
from countless.server.settings import Settings
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import KeyRows
from countless.server.tuning import Tuning
from countless.wire.keys import FAMILY, Key, calendar_fields, is_plain, parse_calendar, require_one


class FamilyObjects(Objects[TrackedFamily, WindowedFamily]):
    kind = FAMILY

    def __init__(
        self,
        names: Names,
        sessions: SessionTable,
        pipeline: CommitPipeline,
        settings: Settings,
        wall_clock: Callable[[], float],
        retire: Callable[[Session], None],
        tuning: Tuning,
    ) -> None:
        super().__init__(names, sessions, pipeline, settings, wall_clock, retire)
        self.label_shares = LabelShares(settings.max_label_mb, settings.max_share, tuning.labels_nearly_full)
        self._windows_kept = tuning.family_windows

    def load(self, saved: Iterable[tuple[Key, KeyRows]]) -> None:
        """Everything that a store has, in the order of its keys: windows come after their family."""
        for name, group in groupby(saved, key=lambda each: each[0].name):
            own = iter(group)
            loaded = SavedFamily.of(*next(own))
            rule = loaded.fields.rule
            if rule.windows is None:
                family = self._family(name, rule, loaded)
                self._add(family, [family])
                self._count_labels([family])
            else:
                windows = self._windowed(name, rule, loaded)
                windows.load((key.period, SavedFamily.of(key, rows)) for key, rows in own)
                self._add(windows, windows.open.values(), windows)
                self._count_labels(windows.saved)

    def _count_labels(self, families: list[TrackedFamily]) -> None:
        for family in families:
            self.label_shares.add_labels(family.key, UNLIMITED, family.coordinator.known)
            for site_id, member in family.coordinator.members():
                size = MEMBER_BYTES + label_bytes(member.counts)
                self.label_shares.add(LabelUse(family.key, site_id), UNLIMITED, size)

    def _family(self, name: str, rule: FamilyRule, saved: SavedFamily | None = None) -> TrackedFamily:
        pipeline, clock = self._pipeline, self._wall_clock
        key = Key(FAMILY, name)
        return TrackedFamily(key, rule, saved, pipeline.health, on_change=pipeline.changed, wall_clock=clock)

    def _windowed(self, name: str, rule: FamilyRule, saved: SavedFamily | None = None) -> WindowedFamily:
        pipeline = self._pipeline
        return WindowedFamily(name, rule, self._wall_clock, saved, pipeline.health, pipeline.changed)

    def get(self, name: str) -> AnyFamily:
        """Of a reader who asks for quantiles."""
        try:
            return self.by_name[name]
        except KeyError:
            distributions = [each.name for each in self.by_name.values() if each.rule.kind == VALUES]
            raise UnknownName("distribution", name, distributions) from None

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
        require_same_windows(key, family.rule.windows)
        if (family.rule.kind, family.rule.accuracy) != (rule.kind, rule.accuracy):
            kinds = {"labels": "a counter with labels", "values": f"a distribution of accuracy {family.rule.accuracy}"}
            message = f"{name!r} is {kinds[family.rule.kind]}: use it as that, or delete it first"
            raise InvalidParameter("family", name, message=message)
        return self._window(self.windowed[name], key, peer) if name in self.windowed else self.trackers[name]

    def create(self, name: str, rule: FamilyRule, peer: str = UNLIMITED) -> AnyFamily:
        if name != Key(FAMILY, name).root or not is_plain(name):
            raise InvalidParameter("family", name, "a name without labels and windows")
        if self._names.kind_of(name) not in (None, FAMILY):
            allowed = "another name, or family=False: there is a counter of this name; delete it to get a family"
            raise InvalidParameter("family", name, allowed)
        self._require_new(name, peer)
        family: AnyFamily
        if rule.windows is None:
            family = self._family(name, rule)
            self._add(family, [family])
        else:
            family = self._windowed(name, rule)
            self._add(family, (), family)
        self._shares.add(name, peer)
        family.mark()
        return family

    def configure(self, name: str, rule: FamilyRule) -> None:
        """Give a family windows, from the next edge on, or keep another number of them."""
        windows = self.windowed.get(name)
        if rule.windows is None:
            return
        if windows is not None:
            require_same_calendar(windows.calendar, rule.windows)
            windows.reconfigure(rule)
            windows.mark()
            return
        family = self.trackers[name]
        require_no_site("family", name, rule.windows, family.coordinator.site_ids)
        self._pipeline.forget(family)
        after = WindowedFamily.continuing(family, rule, self._wall_clock)
        del self.trackers[name]
        self._add(after, (), after)
        after.dropped_windows.mark_labels(after.dropped_windows.coordinator.known)  # perhaps not saved yet
        family.notify()

    def _close(self, windows: WindowedFamily, period: int) -> TrackedFamily:
        labels = len(windows.dropped_windows.coordinator.known)
        window = super()._close(windows, period)
        if period < windows.first:
            self._dropped(windows, [window], labels)
        windows.mark(windows.move_losses([period]))
        return window

    def _drop_oldest(self, windows: WindowedFamily) -> None:
        kept, labels = dict(windows.kept), len(windows.dropped_windows.coordinator.known)
        dropped = windows.drop_windows()
        self._dropped(windows, [kept[period] for period in dropped], labels)
        if dropped:
            windows.mark(windows.move_losses(dropped))

    def _dropped(self, family: WindowedFamily, windows: list[TrackedFamily], labels_before: int) -> None:
        """`labels_before`: how many labels of dropped windows there were before."""
        new = set(newest(family.dropped_windows.coordinator.known, labels_before))
        for window in windows:
            self.label_shares.drop_window(window.key, window.coordinator.known, family.dropped_windows.key, new)
            self._forget(window)
            family.dropped_windows.mark_labels(window.coordinator.known)

    def remove(self, name: str) -> None:
        windows = self.windowed.get(name)
        saved = [self.trackers[name]] if windows is None else windows.saved
        self._remove(name)
        for family in saved:
            self.label_shares.remove_labels(family.key)
            self._forget(family)
