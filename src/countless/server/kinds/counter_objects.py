"""All counters by name, and the limits on how many there may be. Every change is marked for the next commit."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable
from dataclasses import fields, replace

from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter
from countless.server.kinds.counter import AnyCounter, SavedCounter, TrackedCounter, WindowedCounter
from countless.server.sessions.objects import (
    Names,
    Objects,
    begin_windows,
    require_no_site,
    require_same_calendar,
    require_same_windows,
)
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.sessions.shares import UNLIMITED
from countless.server.sessions.tracked import Surroundings
from countless.server.settings import Config, Settings, require_config
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import KeyRows
from countless.wire.keys import (
    COUNTER,
    Key,
    calendar_fields,
    counter_of,
    counter_of_series,
    parse_calendar,
    require_one,
)


class CounterObjects(Objects[TrackedCounter, WindowedCounter, Config]):
    """Labelled series are counters of their own, with the config of the counter that they belong to."""

    kind = COUNTER

    spec_type = Config

    def __init__(
        self,
        names: Names,
        sessions: SessionTable,
        pipeline: CommitPipeline,
        settings: Settings,
        around: Surroundings,
        retire: Callable[[Session], None],
    ) -> None:
        super().__init__(names, sessions, pipeline, settings, around, retire)
        self.labelled: dict[str, dict[str, None]] = {}  # by counter: its labelled series, and its overflow series
        self._series: Tally[str] = Tally()  # by counter: its labelled series

    def parts(self, name: str) -> list[AnyCounter]:
        """What a counter is the sum of: its events without labels, and its labelled series."""
        parts = [self.by_name[name]] if name in self.by_name else []
        return parts + [self.by_name[each] for each in self.labelled.get(name, ())]

    def _add(
        self, counter: AnyCounter, trackers: Iterable[TrackedCounter], windows: WindowedCounter | None = None
    ) -> None:
        if counter.name not in self.by_name:
            self._series.update(filter(None, [counter_of_series(counter.name)]))
        super()._add(counter, trackers, windows)
        parent = counter_of(counter.name)
        if parent is not None:
            self.labelled.setdefault(parent, {})[counter.name] = None
            if parent in self.by_name:
                self.by_name[parent].notify()  # who waits for a change of it waits for the sum from now on

    def _require_may_create(self, name: str, spec: Config) -> None:
        require_config(spec)
        self._require_no_other_kind(Key(COUNTER, name))
        if name not in self.by_name and self._is_beyond_cap(name):
            cap = self._config_of_family(name).label_cap
            raise InvalidParameter("counter", name, f"one of at most {cap} (label_cap)")

    def _require_no_other_kind(self, key: Key) -> None:
        """Raise InvalidParameter for a counter, a series or a window whose counter is a family."""
        if self._names.kind_of(key.root) not in (None, COUNTER):
            message = f"{key.root!r} is a family: count it with family=True"
            raise InvalidParameter("counter", str(key), message=message)

    def _tracker(self, key: Key, spec: Config, rows: KeyRows | None = None) -> TrackedCounter:
        return TrackedCounter(key, spec, self._around, None if rows is None else SavedCounter.of(key, rows))

    def _windows(self, key: Key, spec: Config) -> WindowedCounter:
        return WindowedCounter(key, spec, self._around)

    def config_of(self, name: str) -> Config:
        """Of a counter that has labelled series only, it is that of the first of them."""
        if name not in self.by_name and name in self.labelled:
            return self.by_name[next(iter(self.labelled[name]))].spec
        return self.get(name).spec

    def configure(self, name: str, config: Config) -> list[TrackedCounter]:
        """Replace the config of a counter; its labelled series get what differs from the present one. Returns the
        counters without windows that have changed: their `coordinator.recover` is due.

        Without windows, alpha may only grow, because the published total cannot be taken back. A counter with windows
        uses another config from the next window on. One without gets windows if no site counts it.
        """
        before = self.config_of(name)
        require_config(config)
        _require_whole_counter(name, before, config)
        given = [
            (part, config if part.name == name else _with_changes(part.spec, before, config))
            for part in self.parts(name)
        ]
        for part, each in given:
            self._require_change(part, each)
        if config.windows is not None:
            members = [site_id for part, _ in given if isinstance(part, TrackedCounter) for site_id in part.members]
            require_no_site("counter", name, config.windows, members)
        if name not in self.by_name:
            self.create(name, config)
        replaced = [self._replace(part, each) for part, each in given if each != part.spec]
        return [part for part in replaced if isinstance(part, TrackedCounter)]

    def _require_change(self, part: AnyCounter, config: Config) -> None:
        if isinstance(part, WindowedCounter):
            require_same_calendar(part.calendar, config.windows)
        elif config.windows is None and config.alpha < part.spec.alpha:
            raise InvalidParameter("alpha", config.alpha, f"at least {part.spec.alpha}, which it has had so far")

    def _replace(self, part: AnyCounter, config: Config) -> AnyCounter:
        if isinstance(part, TrackedCounter) and config.windows is not None:
            return self._begin_windows(part, config)
        part.reconfigure(config)
        return part

    def remove(self, name: str) -> None:
        super().remove(name)
        self._series.subtract(filter(None, [counter_of_series(name)]))
        parent = counter_of(name)
        if parent is not None:
            del self.labelled[parent][name]
            if not self.labelled[parent]:
                del self.labelled[parent]

    # Where sites are counted

    def tracker_for(self, key: Key, peer: str = UNLIMITED) -> TrackedCounter:
        """Where a site's events of this key are counted: the counter or window, created if there is none, or for a
        series beyond the cap the overflow series. A rejected key changes nothing.
        """
        tracker = self.trackers.get(str(key))
        if tracker is not None:
            return tracker
        self._require_no_other_kind(key)
        require_one(key)
        overflows = key.name not in self.by_name and self._is_beyond_cap(key.name)
        home = key.overflow if overflows else key
        config = self.by_name[home.name].spec if home.name in self.by_name else self._config_for(key)
        require_same_windows(home, config.windows)
        if key.is_window:
            parse_calendar(key.calendar).bounds(key.period)
        counter = self.by_name.get(home.name) or self.create(home.name, config, peer)
        windows = self.windowed.get(home.name)
        tracker = self.trackers[counter.name] if windows is None else self._window(windows, home, peer)
        if overflows and tracker.coordinator.sites >= self._settings.max_sites:
            allowed = f"one of at most {self._settings.max_sites} beyond the label cap"
            raise InvalidParameter("counter", key.in_words, allowed)
        return tracker

    def _config_for(self, key: Key) -> Config:
        """Of a counter that a site uses for the first time."""
        if not key.is_window or (counter_of_series(key.name) or "") in self.by_name:
            return self._config_of_family(key.name)
        return replace(self._settings.defaults, windows=WindowRule(*calendar_fields(key.calendar)))

    def _config_of_family(self, name: str) -> Config:
        """Series have the config of the counter they belong to, or else the default."""
        counter = self.by_name.get(counter_of_series(name) or "")
        return counter.spec if counter else self._settings.defaults

    def _is_beyond_cap(self, name: str) -> bool:
        family = counter_of_series(name)
        return family is not None and self._series[family] >= self._config_of_family(name).label_cap


def _with_changes(config: Config, before: Config, after: Config) -> Config:
    """The config of a series, with what has changed in that of its counter."""
    names = [field.name for field in fields(Config)]
    return replace(
        config, **{each: getattr(after, each) for each in names if getattr(after, each) != getattr(before, each)}
    )


def _require_whole_counter(name: str, before: Config, config: Config) -> None:
    """Raise InvalidParameter for windows of one series: the sum of all would have none."""
    parent = counter_of(name)
    if parent is not None and before.windows is None and config.windows is not None:
        message = f"labelled series get windows with their counter: {begin_windows(parent, config.windows.per)}"
        raise InvalidParameter("per", config.windows.per, message=message)
