"""Counters, or families, by name: where they are counted, their windows, and the limits on how many there may be."""

from abc import ABC, abstractmethod
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from math import inf
from shlex import quote
from typing import Any, Generic, TypeVar

from countless.core.calendar import Calendar
from countless.core.messages import SiteId
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter, UnknownName
from countless.server.sessions.periodic import Periodic
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.sessions.shares import UNLIMITED, Shares
from countless.server.sessions.tracked import Counted, S, Surroundings
from countless.server.settings import Settings
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import KeyRows, value_of
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


class Names:
    """Of which kind a name is; a counter that has series only is one, too."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}  # by name without labels
        self._count: Tally[str] = Tally()

    def kind_of(self, root: str) -> str | None:
        return self._kinds.get(root)

    def add(self, key: Key) -> None:
        self._kinds[key.root] = key.kind
        self._count[key.root] += 1

    def remove(self, key: Key) -> None:
        self._count[key.root] -= 1
        if not self._count[key.root]:
            del self._count[key.root], self._kinds[key.root]


T = TypeVar("T", bound=Counted[Any])
P = TypeVar("P", bound=Periodic[Any, Any])


class Objects(ABC, Generic[T, P, S]):
    """Those of one kind. `trackers` are where sites are counted: all without windows, and open windows, by the texts of
    their keys, which frames have. Every change is marked for the next commit.
    """

    kind: str
    spec_type: type[S]

    def __init__(
        self,
        names: Names,
        sessions: SessionTable,
        pipeline: CommitPipeline,
        settings: Settings,
        around: Surroundings,
        retire: Callable[[Session], None],
    ) -> None:
        self.by_name: dict[str, T | P] = {}
        self.trackers: dict[str, T] = {}
        self.windowed: dict[str, P] = {}  # those that have windows
        self._names = names
        self._sessions = sessions
        self._pipeline = pipeline
        self._settings = settings
        self._around = around
        self._retire = retire
        self._shares = Shares[str](settings.max_counters, settings.max_share)
        self._window_shares = Shares[str](MAX_OPEN_PER_COUNTER * settings.max_counters, settings.max_share)

    # What a kind has to say

    @abstractmethod
    def _tracker(self, key: Key, spec: S, rows: KeyRows | None = None) -> T:
        """What has no windows: new, or as it was saved."""

    @abstractmethod
    def _windows(self, key: Key, spec: S) -> P: ...

    @abstractmethod
    def _require_may_create(self, name: str, spec: S) -> None:
        """Raise InvalidParameter if the kind can't have it."""

    # Names

    def get(self, name: str) -> T | P:
        try:
            return self.by_name[name]
        except KeyError:
            raise UnknownName(self.kind, name, self.by_name) from None

    def load(self, saved: Iterable[tuple[Key, KeyRows]]) -> None:
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
            found = tracker = self._tracker(Key(self.kind, name), spec)
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
        return self._windows(Key(self.kind, name, calendar_text(spec.windows.calendar), ALL), spec)

    def _require_new(self, name: str, peer: str) -> None:
        """Raise InvalidParameter unless the peer may create something of this name."""
        validate_name(name, self.kind)
        if not is_plain(name):
            raise InvalidParameter(self.kind, name, "a name that does not end like a window's, such as @hour:5")
        if name in self.by_name:
            raise InvalidParameter(self.kind, name, "a name that is not taken")
        if len(self.by_name) >= self._settings.max_counters:
            raise InvalidParameter(self.kind, name, f"one of at most {self._settings.max_counters} (max_counters)")
        if self._shares.is_full(peer):
            allowed = f"one of at most {self._shares.most} of one token (max_share of max_counters)"
            raise InvalidParameter(self.kind, name, allowed)

    def _add(self, found: T | P, trackers: Iterable[T], windows: P | None = None) -> None:
        """It is new, was loaded, or has windows from now on."""
        if found.name not in self.by_name:
            self._names.add(found.key)
        self.by_name[found.name] = found
        self.trackers.update({tracker.name: tracker for tracker in trackers})
        if windows is not None:
            self.windowed[found.name] = windows

    def remove(self, name: str) -> None:
        found = self.by_name.pop(name)
        self._names.remove(found.key)
        self._shares.remove(name)
        windows = self.windowed.pop(name, None)
        for tracker in [self.trackers[name]] if windows is None else windows.open.values():
            del self.trackers[tracker.name]
            self._window_shares.remove(tracker.name)
            self._pipeline.forget(tracker)
        self._pipeline.remove(found)  # and all rows of its windows
        self._pipeline.forget_tombstones(found.key, Key(self.kind, name))
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
            raise InvalidParameter(self.kind, str(key), message=message)
        tracker: T = windows.open_window(key.period)
        self.trackers[tracker.name] = tracker
        self._window_shares.add(tracker.name, peer)
        return tracker

    def sweep_in_slices(self) -> Iterator[None]:
        """Close windows that have ended, and drop those that are not kept any more. A name is looked at when a window
        ends, and when a site has left a window that has ended. Yields between slices, for other work of the loop.
        """
        now, swept = self._around.wall_clock(), 0
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
            session = self._sessions.get(site_id)
            if session is not None and session.unreachable:
                self._retire(session)


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
