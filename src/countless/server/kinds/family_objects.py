"""All families by name, and their windows."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from countless.core.family.rule import VALUES, FamilyRule
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter, UnknownName
from countless.server.kinds.family import AnyFamily, SavedFamily, TrackedFamily, WindowedFamily
from countless.server.kinds.label_shares import MEMBER_BYTES, LabelShares, LabelUse, label_bytes
from countless.server.sessions.objects import (
    Names,
    Objects,
    require_no_site,
    require_same_calendar,
    require_same_windows,
)
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.sessions.shares import UNLIMITED
from countless.server.sessions.tracked import Surroundings
from countless.server.settings import Settings
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import KeyRows
from countless.server.tuning import Tuning
from countless.wire.keys import FAMILY, Key, calendar_fields, is_plain, parse_calendar, require_one


class FamilyObjects(Objects[TrackedFamily, WindowedFamily, FamilyRule]):
    kind = FAMILY
    spec_type = FamilyRule

    def __init__(
        self,
        names: Names,
        sessions: SessionTable,
        pipeline: CommitPipeline,
        settings: Settings,
        around: Surroundings,
        retire: Callable[[Session], None],
        tuning: Tuning,
    ) -> None:
        super().__init__(names, sessions, pipeline, settings, around, retire)
        self.label_shares = LabelShares(settings.max_label_mb, settings.max_share, tuning.labels_nearly_full)
        self._windows_kept = tuning.family_windows

    def _tracker(self, key: Key, spec: FamilyRule, rows: KeyRows | None = None) -> TrackedFamily:
        return TrackedFamily(key, spec, self._around, None if rows is None else SavedFamily.of(key, rows))

    def _windows(self, key: Key, spec: FamilyRule) -> WindowedFamily:
        def on_dropped(window: TrackedFamily, new: set[str]) -> None:
            self.label_shares.drop_window(window.key, window.coordinator.known, key, new)

        return WindowedFamily(key, spec, self._around, on_dropped)

    def load(self, saved: Iterable[tuple[Key, KeyRows]]) -> None:
        super().load(saved)
        for name in self.by_name:
            for family in self._saved(name):
                self.label_shares.add_labels(family.key, UNLIMITED, family.coordinator.known)
                for site_id, member in family.coordinator.members():
                    size = MEMBER_BYTES + label_bytes(member.counts)
                    self.label_shares.add(LabelUse(family.key, site_id), UNLIMITED, size)

    def _saved(self, name: str) -> list[TrackedFamily]:
        windows = self.windowed.get(name)
        return [self.trackers[name]] if windows is None else windows.saved

    def get(self, name: str) -> AnyFamily:
        """Of a reader who asks for quantiles."""
        try:
            return self.by_name[name]
        except KeyError:
            distributions = [each.name for each in self.by_name.values() if each.spec.kind == VALUES]
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
        require_same_windows(key, family.spec.windows)
        if (family.spec.kind, family.spec.accuracy) != (rule.kind, rule.accuracy):
            kinds = {"labels": "a counter with labels", "values": f"a distribution of accuracy {family.spec.accuracy}"}
            message = f"{name!r} is {kinds[family.spec.kind]}: use it as that, or delete it first"
            raise InvalidParameter("family", name, message=message)
        return self._window(self.windowed[name], key, peer) if name in self.windowed else self.trackers[name]

    def _require_may_create(self, name: str, spec: FamilyRule) -> None:
        if name != Key(FAMILY, name).root or not is_plain(name):
            raise InvalidParameter("family", name, "a name without labels and windows")
        if self._names.kind_of(name) not in (None, FAMILY):
            allowed = "another name, or family=False: there is a counter of this name; delete it to get a family"
            raise InvalidParameter("family", name, allowed)

    def configure(self, name: str, rule: FamilyRule) -> None:
        """Give a family windows, from the next edge on, or keep another number of them."""
        windows = self.windowed.get(name)
        if rule.windows is None:
            return
        if windows is not None:
            require_same_calendar(windows.calendar, rule.windows)
            windows.reconfigure(rule)
            return
        family = self.trackers[name]
        require_no_site("family", name, rule.windows, family.members)
        after = self._begin_windows(family, rule)
        self.label_shares.rename(family.key, after.key)

    def remove(self, name: str) -> None:
        for family in self._saved(name):
            self.label_shares.remove_labels(family.key)
        super().remove(name)
