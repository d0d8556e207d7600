"""The part that counters and families have in common: names, windows, and limits on their number."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import groupby
from math import inf
from shlex import quote
from typing import Any, Generic, TypeVar

from countless.core.calendar import Calendar
from countless.core.messages import SiteId
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter, UnknownName
from countless.server.sessions.kind import Kind
from countless.server.sessions.periodic import Periodic
from countless.server.sessions.service import Service
from countless.server.sessions.shares import UNLIMITED, Shares
from countless.server.sessions.tracked import Counted, S, Tracked
from countless.server.storage.rows import KeyRows, value_of
from countless.wire.frames import DownItem
from countless.wire.keys import (
    ALL,
    Key,
    calendar_fields,
    calendar_text,
    counter_of,
    is_plain,
    parse_calendar,
    validate_name,
)

MAX_OPEN_PER_COUNTER = 4  # windows that are open, by max_counters: usually two of each, far more after an outage
MAX_NAMED = 5  # sites in an error
COUNTERS_PER_SLICE = 1000  # looked at in one go
SWEPT_PER_SLICE = 100  # that have something to close: some milliseconds


T = TypeVar("T", bound=Counted[Any])
P = TypeVar("P", bound=Periodic[Any, Any])


class CountedKind(Kind, Generic[T, P, S]):
    """A kind whose objects have names that they share with the other such kinds, and windows if they are to. `trackers`
    are where sites are counted: all without windows, and open windows, by the texts of their keys, which frames have.
    """

    spec_type: type[S]

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self.by_name: dict[str, T | P] = {}
        self.trackers: dict[str, T] = {}
        self.windowed: dict[str, P] = {}  # those that have windows
        self._service = service
        self._settings = service.settings
        self._members = service.members
        self._pipeline = service.pipeline
        self._shares = Shares[str](settings.max_counters, settings.max_share)
        self._window_shares = Shares[str](MAX_OPEN_PER_COUNTER * settings.max_counters, settings.max_share)

    # What a kind has to say

    @abstractmethod
    def _tracker(self, key: Key, spec: S, rows: KeyRows | None = None) -> T:
        """Make one without windows: new, or as it was saved."""

    @abstractmethod
    def _windows(self, key: Key, spec: S) -> P: ...

    @abstractmethod
    def _require_may_create(self, name: str, spec: S) -> None:
        """Raise InvalidParameter if the kind can't have it."""

    @abstractmethod
    def configure(self, name: str, spec: S) -> None:
        """Replace the spec of what has this name. Raises InvalidParameter, and has changed nothing then."""

    @abstractmethod
    def reset_item(self, text: str) -> DownItem:
        """To a site: what it has counted under this name was deleted, so that it begins again from zero."""

    # Names

    @property
    def names(self) -> Iterable[str]:
        """All that `parts` knows."""
        return self.by_name

    def parts(self, name: str) -> list[T | P]:
        """All that is counted under a name; a counter is the sum of several. Empty: nothing is."""
        return [self.by_name[name]] if name in self.by_name else []

    def spec_of(self, name: str) -> S:
        found: S = (self.parts(name) or [self.get(name)])[0].spec
        return found

    def get(self, name: str) -> T | P:
        try:
            return self.by_name[name]
        except KeyError:
            raise UnknownName(self.name, name, self.by_name) from None

    def load(self, saved: Iterable[tuple[Key, KeyRows]]) -> Iterator[tuple[SiteId, Key, Tracked]]:
        self._load(saved)
        for tracker in self.trackers.values():
            for site_id in tracker.members:
                key = tracker.key.of_part(site_id.part) if site_id.part else tracker.key
                yield site_id._replace(part=""), key, tracker

    def _load(self, saved: Iterable[tuple[Key, KeyRows]]) -> None:
        """Everything that a store has, in the order of its keys: windows come after all windows together."""
        for name, group in groupby(saved, key=lambda each: each[0].name):
            own = iter(group)
            key, rows = next(own)
            spec = value_of(key, rows, "spec", self.spec_type)
            if spec.windows is None:
                tracker = self._tracker(key, spec, rows)
                self._add(tracker, [tracker])
            else:
                windows = self._windows_of(name, spec)
                windows.load(rows, own)
                self._add(windows, windows.open.values(), windows)

    def create(self, name: str, spec: S, peer: str = UNLIMITED) -> T | P:
        self._require_may_create(name, spec)
        self._require_new(name, peer)
        found: T | P
        if spec.windows is None:
            found = tracker = self._tracker(Key(self.name, name), spec)
            self._add(tracker, [tracker])
        else:
            found = windows = self._windows_of(name, spec)
            self._add(windows, (), windows)
        self._shares.add(name, peer)
        found.mark_spec()
        return found

    def _begin_windows(self, before: T, spec: S) -> P:
        """Windows for what has none, while no site counts it."""
        after = self._windows_of(before.name, spec)
        after.begin(before)
        del self.trackers[before.name]
        self._add(after, (), after)
        self._pipeline.remove(before)
        before.notify()
        after.mark_spec()
        return after

    def _windows_of(self, name: str, spec: S) -> P:
        if spec.windows is None:
            raise InvalidParameter("windows", None, "the rule of windows")
        return self._windows(Key(self.name, name, calendar_text(spec.windows.calendar), ALL), spec)

    def _require_new(self, name: str, peer: str) -> None:
        """Raise InvalidParameter unless the peer may create something of this name."""
        validate_name(name, self.name)
        if not is_plain(name):
            raise InvalidParameter(self.name, name, "a name that does not end like a window's, such as @hour:5")
        if name in self.by_name:
            raise InvalidParameter(self.name, name, "a name that is not taken")
        if len(self.by_name) >= self._settings.max_counters:
            raise InvalidParameter(self.name, name, f"one of at most {self._settings.max_counters} (max_counters)")
        if self._shares.is_full(peer):
            allowed = f"one of at most {self._shares.most} of one token (max_share of max_counters)"
            raise InvalidParameter(self.name, name, allowed)

    def _add(self, found: T | P, trackers: Iterable[T], windows: P | None = None) -> None:
        """It is new, was loaded, or has windows from now on."""
        if found.name not in self.by_name:
            self._service.names.add(found.key)
        self.by_name[found.name] = found
        self.trackers.update({tracker.name: tracker for tracker in trackers})
        if windows is not None:
            self.windowed[found.name] = windows

    def delete(self, name: str) -> None:
        """Delete all its parts. Connected sites join again, or join its present window, with a count of zero."""
        for part in self.parts(name) or [self.get(name)]:
            windows = self.windowed.get(part.name)
            trackers: list[T] = [self.trackers[part.name]] if windows is None else [*windows.open.values()]
            keys = {Key(self.name, part.name), part.key}
            if windows is not None:
                keys |= {part.key.window(period) for period in (*windows.open, *windows.closed)}
            self._members.begin_again(trackers, keys, lambda key: self.reset_item(str(key)))
            self._remove(part.name)

    def _remove(self, name: str) -> None:
        found = self.by_name.pop(name)
        self._service.names.remove(found.key)
        self._shares.remove(name)
        windows = self.windowed.pop(name, None)
        for tracker in [self.trackers[name]] if windows is None else windows.open.values():
            del self.trackers[tracker.name]
            self._window_shares.remove(tracker.name)
        for part in [] if windows is None else windows.saved:
            self._pipeline.forget(part)
        self._pipeline.remove(found)  # and all rows of its windows
        self._pipeline.forget_tombstones(found.key, Key(self.name, name))
        found.notify()

    # Windows

    def _window(self, windows: P, key: Key, peer: str) -> T:
        """A window that is opened, unless it is open."""
        found: T | None = windows.open.get(key.period)
        if found is not None:
            return found
        windows.require_near(key.period)
        full = len(self.trackers) >= MAX_OPEN_PER_COUNTER * self._settings.max_counters
        if full or self._window_shares.is_full(peer):
            message = "too many windows are open at once (max_counters)"
            raise InvalidParameter(self.name, str(key), message=message)
        tracker: T = windows.open_window(key.period)
        self.trackers[tracker.name] = tracker
        self._window_shares.add(tracker.name, peer)
        return tracker

    def tick(self) -> Iterator[None]:
        """Close windows that have ended, and drop those that are not kept any more. A name is looked at when a window
        ends, and when a site has left a window that has ended. Yields between slices, for other work of the loop.
        """
        now, swept = self._service.around.wall_clock(), 0
        for number, windows in enumerate(list(self.windowed.values()), start=1):
            if number % COUNTERS_PER_SLICE == 0:
                yield
            if windows.sweep_at <= now:
                self._sweep(windows)
                swept += 1
                if swept % SWEPT_PER_SLICE == 0:
                    yield

    def _sweep(self, windows: P) -> None:
        for period in windows.ended():
            tracker = windows.close_window(period)
            del self.trackers[tracker.name]
            self._window_shares.remove(tracker.name)
        windows.drop_windows()
        present = windows.present
        windows.sweep_at = min(
            (windows.calendar.bounds(period)[1] for period in windows.open if period >= present), default=inf
        )
        # Otherwise windows that are not kept any more would stay open, and make all later ones incomplete, until an
        # operator removes the session.
        for site_id in windows.members_before_first():
            windows.sweep_at = -inf  # look again at the next tick
            session = self._service.sessions.get(site_id)
            if session is not None and session.unreachable:
                self._service.retire_lost(session)


# Whether a name has windows


def begin_windows(name: str, per: str) -> str:
    """The command; series get windows with their counter."""
    return f"`countless counter set {quote(counter_of(name) or name)} --per {per}`"


def require_same_windows(key: Key, rule: WindowRule | None) -> None:
    """Raise InvalidParameter if a site counts a name with other windows than it has, with none, or with some."""
    kind, name = key.kind, key.name
    if not key.is_window and rule is not None:
        message = f"{kind} {name!r} has windows: count it with per={rule.per!r}"
        raise InvalidParameter(kind, name, message=message)
    if key.is_window and rule is None:
        per, *_ = calendar_fields(key.calendar)
        message = f"{kind} {name!r} has no windows: count it without per; {begin_windows(name, per)} starts some"
        raise InvalidParameter("per", per, message=message)
    if rule is not None and calendar_text(rule.calendar) != key.calendar:
        allowed = f"{rule.calendar!r}, as {kind} {name!r} has them; to change that, delete the {kind}"
        raise InvalidParameter("windows", repr(parse_calendar(key.calendar)), allowed)


def require_no_site(kind: str, name: str, rule: WindowRule, members: Iterable[SiteId]) -> None:
    """Raise InvalidParameter for members, which count without windows."""
    names = sorted({str(site_id.site) for site_id in members})
    if names:
        sites = [repr(each) for each in names]
        named = ", ".join(sites[:MAX_NAMED]) + (f" and {len(sites) - MAX_NAMED} more" if sites[MAX_NAMED:] else "")
        message = (
            f"{kind} {name!r} gets windows only while no site counts it: end {named} first, "
            f"or start them again with per={rule.per!r}"
        )
        raise InvalidParameter("per", rule.per, message=message)


def require_same_calendar(calendar: Calendar, rule: WindowRule | None) -> None:
    """Raise InvalidParameter unless a rule has the calendar of the present windows."""
    if rule is None or not rule.calendar.same_as(calendar):
        message = "per, tz and anchor can't be changed: delete the counter to get other windows"
        raise InvalidParameter("per", rule, message=message)
