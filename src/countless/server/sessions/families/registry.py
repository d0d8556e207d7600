"""All families by name, their windows, and the limits on how many there may be. Every change is marked for the next
commit.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace

from countless.core.family.rule import VALUES, FamilyRule
from countless.core.windows.rule import WindowRule
from countless.errors import InvalidParameter, UnknownName
from countless.server.sessions.families.family import ServedFamily
from countless.server.sessions.families.label_shares import MEMBER_BYTES, LabelShares, Part, label_bytes, newest
from countless.server.sessions.families.windowed_family import AnyFamily, WindowedFamily
from countless.server.sessions.shares import UNLIMITED, Shares
from countless.server.sessions.windows.served import MAX_OPEN_PER_COUNTER
from countless.server.settings import Settings
from countless.server.storage.base import SavedFamily
from countless.server.storage.commit import CommitPipeline
from countless.wire.keys import validate_name
from countless.wire.windows import WindowName, parse_window, shard_name, window_group


class FamilyRegistry:
    """`by_name` is what people see. `trackers` are what is saved, and where sites are counted: families without windows
    under their names, and windows that are kept under their wire names.
    """

    def __init__(
        self,
        trackers: dict[str, ServedFamily],
        counters: Callable[[], Container[str]],
        settings: Settings,
        pipeline: CommitPipeline,
        wall_clock: Callable[[], float],
    ) -> None:
        self.by_name: dict[str, AnyFamily] = {}
        self.windowed: dict[str, WindowedFamily] = {}  # those that have windows
        self.trackers = trackers
        self._counters = counters  # the names of all counters
        self._pipeline = pipeline
        self._wall_clock = wall_clock
        self._max_families = settings.max_counters
        self._shares = Shares[str](self._max_families, settings.max_share)
        most_windows = MAX_OPEN_PER_COUNTER * self._max_families
        self._window_shares = Shares[str](most_windows, settings.max_share)
        self.label_shares = LabelShares(settings.max_label_mb, settings.max_share)

    def load(self, saved: Mapping[str, SavedFamily]) -> None:
        windows: dict[str, list[tuple[int, SavedFamily]]] = {}
        for name, each in saved.items():
            window = parse_window(name)
            if window is None:
                self._add(self._new(name, each.fields.rule, each))
            else:
                windows.setdefault(window.series, []).append((window.period, each))
        for name, periods in windows.items():
            self.windowed[name].load(sorted(periods, key=lambda each: each[0]))
            self.trackers.update(self.windowed[name].trackers)
        for name, tracker in self.trackers.items():
            self.label_shares.add_labels(name, UNLIMITED, tracker.coordinator.known)
            for site_id, member in tracker.coordinator.members():
                self.label_shares.add(Part(name, site_id), UNLIMITED, MEMBER_BYTES + label_bytes(member.counts))

    def _new(self, name: str, rule: FamilyRule, saved: SavedFamily | None = None) -> AnyFamily:
        if rule.windows is None:
            return ServedFamily(name, rule, saved, self._pipeline.health, wall_clock=self._wall_clock)
        return WindowedFamily(name, rule, self._wall_clock, saved, self._pipeline.health)

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

    def require_no_family(self, counter: str) -> None:
        """Raise InvalidParameter for a counter, a series or a window whose counter is a family."""
        name = shard_name(counter).partition("{")[0]
        if name in self.by_name:
            raise InvalidParameter("counter", counter, message=f"{name!r} is a family: count it with family=True")
        as_group = parse_window(f"{counter}:0")
        if as_group is not None and as_group.series in self.windowed:  # a tombstone of this name is a watermark
            raise InvalidParameter("counter", counter, "a name that no windows of a family have")

    # Where sites are counted

    def tracker_for(self, wire_name: str, rule: FamilyRule, peer: str) -> ServedFamily:
        """The family, or the window, of this name. The first site creates it; the smallest epsilon of all sites is in
        force. A rejected name changes nothing.
        """
        window = parse_window(wire_name)
        if window is not None and str(window) != wire_name:
            raise InvalidParameter("family", wire_name, f"{window}, as this window is called")
        name = window.series if window else wire_name
        family = self.by_name.get(name)
        if family is None:
            if window is not None:
                window.calendar.bounds(window.period)
                rule = replace(rule, windows=WindowRule(window.per, window.tz, window.anchor))
            family = self.create(name, rule, peer)
        _require_same_windows(family, window)
        if (family.rule.kind, family.rule.accuracy) != (rule.kind, rule.accuracy):
            kinds = {"labels": "a counter with labels", "values": f"a distribution of accuracy {family.rule.accuracy}"}
            message = f"{name!r} is {kinds[family.rule.kind]}: use it as that, or delete it first"
            raise InvalidParameter("family", name, message=message)
        if isinstance(family, ServedFamily) or window is None:
            return self.trackers[name]
        return family.open.get(window.period) or self._open_window(family, window.period, peer)

    def create(self, name: str, rule: FamilyRule, peer: str = UNLIMITED) -> AnyFamily:
        validate_name(name, "family")
        if "{" in name or parse_window(name) or parse_window(f"{name}:0"):
            raise InvalidParameter("family", name, "a name without labels and windows")
        if name in self.by_name:
            raise InvalidParameter("family", name, "a name that is not taken")
        if name in self._counters():
            allowed = "another name, or family=False: there is a counter of this name; delete it to get a family"
            raise InvalidParameter("family", name, allowed)
        if rule.windows is not None and window_group(name, rule.windows.calendar) in self._counters():
            raise InvalidParameter("family", name, "another name: there is a counter that is called like its windows")
        if len(self.by_name) >= self._max_families:
            raise InvalidParameter("family", name, f"one of at most {self._max_families} (max_counters)")
        if self._shares.is_full(peer):
            allowed = f"one of at most {self._shares.most} of one token (max_share of max_counters)"
            raise InvalidParameter("family", name, allowed)
        family = self._new(name, rule)
        self._add(family)
        self._shares.add(name, peer)
        self._pipeline.pending.mark_family(name)
        return family

    def _open_window(self, family: WindowedFamily, period: int, peer: str) -> ServedFamily:
        family.require_near(period)
        opened = sum(len(each.open) for each in self.windowed.values())
        if opened >= MAX_OPEN_PER_COUNTER * self._max_families or self._window_shares.is_full(peer):
            message = "too many windows are open at once (max_counters)"
            raise InvalidParameter("family", family.window_name(period), message=message)
        window = self.trackers[family.window_name(period)] = family.open_window(period)
        self._window_shares.add(window.name, peer)
        self._pipeline.pending.mark_family(window.name)
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

    def _dropped(self, family: WindowedFamily, windows: list[ServedFamily], labels_before: int) -> None:
        """`labels_before`: how many labels of dropped windows there were before."""
        new = set(newest(family.dropped_windows.coordinator.known, labels_before))
        for window in windows:
            del self.trackers[window.name]
            self.label_shares.drop_window(window.name, window.coordinator.known, family.name, new)
            self._pipeline.pending.mark_family_dropped(window.name)
            self._pipeline.pending.mark_family_labels(family.name, window.coordinator.known)

    def _changed(self, family: WindowedFamily, periods: Iterable[int]) -> None:
        self._pipeline.pending.mark_family(family.name)
        for period in periods:
            self._pipeline.pending.mark_family(family.window_name(period))

    def remove(self, name: str) -> None:
        family = self.by_name.pop(name)
        del self.trackers[name]
        self.label_shares.remove_labels(name)
        if isinstance(family, WindowedFamily):
            del self.windowed[name]
            for window in family.kept.values():
                del self.trackers[window.name]
                self.label_shares.remove_labels(window.name)
                self._window_shares.remove(window.name)
                self._pipeline.pending.mark_family_dropped(window.name)
            self._pipeline.pending.mark_deleted(family.group)  # its watermarks
        self._shares.remove(name)
        self._pipeline.pending.mark_family_deleted(name)
        family.notify()


def _require_same_windows(family: AnyFamily, window: WindowName | None) -> None:
    windowed = family if isinstance(family, WindowedFamily) else None
    if window is None and windowed is not None:
        per = windowed.calendar.per
        message = f"family {family.name!r} has windows: count it with per={per!r}"
        raise InvalidParameter("family", family.name, message=message)
    if window is not None and windowed is None:
        message = f"family {family.name!r} has no windows: count it without per, or delete it to get some"
        raise InvalidParameter("per", window.per, message=message)
    if window is not None and windowed is not None and not windowed.calendar.same_as(window.calendar):
        allowed = f"{windowed.calendar!r}, as the family {family.name!r} has them; to change that, delete it"
        raise InvalidParameter("windows", repr(window.calendar), allowed)
