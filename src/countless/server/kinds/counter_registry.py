"""All counters by name, and the limits on how many there may be. Every change is marked for the next commit."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from itertools import groupby

from countless.core.coordinator import PersistentState
from countless.core.periods.window import WindowRule
from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter, InvariantBroken, UnknownName
from countless.server.kinds.counter import CounterFields, TrackedCounter, config_of, fields_of, state_of
from countless.server.kinds.windowed_counter import AnyCounter, WindowedCounter
from countless.server.sessions.beginning import begin_windows, require_no_site, require_same_calendar
from countless.server.sessions.periodic import MAX_OPEN_PER_COUNTER
from countless.server.sessions.shares import UNLIMITED, Shares
from countless.server.settings import Config, Settings, require_config
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import KeyRows
from countless.wire.keys import (
    COUNTER,
    Key,
    calendar_fields,
    calendar_text,
    counter_of,
    counter_of_series,
    is_plain,
    parse_calendar,
    require_one,
    validate_name,
)


class CounterRegistry:
    """`counters` are what people see. `trackers` are where sites are counted: counters without windows, and open
    windows, by the texts of their keys, which frames have.
    """

    def __init__(
        self,
        counters: dict[str, AnyCounter],
        settings: Settings,
        pipeline: CommitPipeline,
        wall_clock: Callable[[], float],
        rng: RandomSource,
    ) -> None:
        self.counters = counters
        self.trackers: dict[str, TrackedCounter] = {}
        self.windowed: dict[str, WindowedCounter] = {}  # those of `counters` that have windows
        self.labelled: dict[str, dict[str, None]] = {}  # by counter: its labelled series, and its overflow series
        self._settings = settings
        self._pipeline = pipeline
        self._wall_clock = wall_clock
        self._rng = rng
        self._series: Tally[str] = Tally()  # by counter: its labelled series
        self._shares: Shares[str] = Shares(settings.max_counters, settings.max_share)
        most_windows = MAX_OPEN_PER_COUNTER * settings.max_counters
        self._window_shares: Shares[str] = Shares(most_windows, settings.max_share)

    def get(self, name: str) -> AnyCounter:
        try:
            return self.counters[name]
        except KeyError:
            raise UnknownName("counter", name, self.counters) from None

    def parts(self, name: str) -> list[AnyCounter]:
        """What a counter is the sum of: its events without labels, and its labelled series."""
        parts = [self.counters[name]] if name in self.counters else []
        return parts + [self.counters[each] for each in self.labelled.get(name, ())]

    def load(self, saved: Iterable[tuple[Key, KeyRows]]) -> None:
        """Everything that a store has, in the order of its keys: windows come after their counter."""
        for name, group in groupby(saved, key=lambda each: each[0].name):
            own = iter(group)
            key, rows = next(own)
            config = config_of(key, rows)
            if config.windows is None:
                self.add(self._counter(name, config, state_of(key, rows)))
            else:
                counter = self._windowed(name, config, fields_of(key, rows))
                counter.load(own)
                self.add(counter)

    def add(self, counter: AnyCounter) -> None:
        """A counter that is new, or was loaded, with its open windows."""
        self.counters[counter.name] = counter
        self._series.update(filter(None, [counter_of_series(counter.name)]))
        parent = counter_of(counter.name)
        if parent is not None:
            self.labelled.setdefault(parent, {})[counter.name] = None
            if parent in self.counters:
                self.counters[parent].notify()  # who waits for a change of it waits for the sum from now on
        if isinstance(counter, WindowedCounter):
            self.windowed[counter.name] = counter
            self.trackers.update({tracker.name: tracker for tracker in counter.open.values()})
        else:
            self.trackers[counter.name] = counter

    def create(self, name: str, config: Config, peer: str = UNLIMITED) -> AnyCounter:
        validate_name(name)
        require_config(config)
        if name in self.counters:
            raise InvalidParameter("counter", name, "a name that is not taken")
        if not is_plain(name):
            raise InvalidParameter("counter", name, "a name that does not end like a window's, such as @hour:5")
        if len(self.counters) >= self._settings.max_counters:
            raise InvalidParameter("counter", name, f"one of at most {self._settings.max_counters} (max_counters)")
        if self._shares.is_full(peer):
            allowed = f"one of at most {self._shares.most} of one token (max_share of max_counters)"
            raise InvalidParameter("counter", name, allowed)
        if self._is_beyond_cap(name):
            cap = self._config_of_family(name).label_cap
            raise InvalidParameter("counter", name, f"one of at most {cap} (label_cap)")
        counter = self._new(name, config)
        self.add(counter)
        self._shares.add(name, peer)
        counter.mark_config()
        return counter

    def _new(self, name: str, config: Config) -> AnyCounter:
        if config.windows is not None:
            return self._windowed(name, config)
        return self._counter(name, config)

    def _counter(self, name: str, config: Config, saved: PersistentState | None = None) -> TrackedCounter:
        pipeline = self._pipeline
        return TrackedCounter(
            Key(COUNTER, name),
            config,
            saved,
            health=pipeline.health,
            on_change=pipeline.changed,
            wall_clock=self._wall_clock,
            rng=self._rng,
        )

    def _windowed(self, name: str, config: Config, saved: CounterFields | None = None) -> WindowedCounter:
        pipeline = self._pipeline
        return WindowedCounter(name, config, self._wall_clock, saved, pipeline.health, pipeline.changed, rng=self._rng)

    def config_of(self, name: str) -> Config:
        """Of a counter that has labelled series only, it is that of the first of them."""
        if name not in self.counters and name in self.labelled:
            return self.counters[next(iter(self.labelled[name]))].config
        return self.get(name).config

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
            (part, config if part.name == name else _with_changes(part.config, before, config))
            for part in self.parts(name)
        ]
        for part, each in given:
            self._require_change(part, each)
        if config.windows is not None:
            members = [
                site
                for part, _ in given
                if isinstance(part, TrackedCounter)
                for site, _ in part.coordinator.saved_state.known
            ]
            require_no_site("counter", name, config.windows, members)
        if name not in self.counters:
            self.create(name, config)
        replaced = [self._replace(part, each) for part, each in given if each != part.config]
        return [part for part in replaced if isinstance(part, TrackedCounter)]

    def _require_change(self, part: AnyCounter, config: Config) -> None:
        if isinstance(part, WindowedCounter):
            require_same_calendar(part.calendar, config.windows)
        elif config.windows is None and config.alpha < part.config.alpha:
            raise InvalidParameter("alpha", config.alpha, f"at least {part.config.alpha}, which it has had so far")

    def _replace(self, part: AnyCounter, config: Config) -> AnyCounter:
        name, after = part.name, part
        if isinstance(part, WindowedCounter) or config.windows is None:
            part.reconfigure(config)
        else:
            after = WindowedCounter.continuing(part, config, self._wall_clock)
            del self.trackers[name]
            self.counters[name] = self.windowed[name] = after
            self._drop(part)
            part.notify()
        after.mark_config()
        return after

    def remove(self, name: str) -> None:
        counter = self.counters.pop(name)
        self._shares.remove(name)
        self._series.subtract(filter(None, [counter_of_series(name)]))
        parent = counter_of(name)
        if parent is not None:
            del self.labelled[parent][name]
            if not self.labelled[parent]:
                del self.labelled[parent]
        if isinstance(counter, WindowedCounter):
            del self.windowed[name]
            for tracker in counter.open.values():
                del self.trackers[tracker.name]
                self._window_shares.remove(tracker.name)
                self._pipeline.forget(tracker)
        else:
            del self.trackers[name]
        self._drop(counter)
        self._pipeline.forget_tombstones(counter.key, Key(COUNTER, name))
        counter.notify()

    def _drop(self, counter: AnyCounter) -> None:
        """It is not saved any more; a counter with windows with all of them."""
        self._pipeline.forget(counter)
        self._pipeline.drop(counter.key)

    # Where sites are counted

    def tracker_for(self, key: Key, peer: str = UNLIMITED) -> TrackedCounter:
        """Where a site's events of this key are counted: the counter or window, created if there is none, or for a
        series beyond the cap the overflow series. A rejected key changes nothing.
        """
        tracker = self.trackers.get(str(key))
        if tracker is not None:
            return tracker
        require_one(key)
        overflows = key.name not in self.counters and self._is_beyond_cap(key.name)
        home = key.overflow if overflows else key
        config = self.counters[home.name].config if home.name in self.counters else self._config_for(key)
        _require_same_windows(home, config)
        if key.is_window:
            parse_calendar(key.calendar).bounds(key.period)
        counter = self.counters.get(home.name) or self.create(home.name, config, peer)
        tracker = counter if isinstance(counter, TrackedCounter) else self._window(counter, home, peer)
        if overflows and tracker.coordinator.sites >= self._settings.max_sites:
            allowed = f"one of at most {self._settings.max_sites} beyond the label cap"
            raise InvalidParameter("counter", key.in_words, allowed)
        return tracker

    def _window(self, counter: WindowedCounter, window: Key, peer: str) -> TrackedCounter:
        """A window that is opened, unless it is open."""
        if not window.is_window:
            raise InvariantBroken(f"no window of {counter.name!r}")
        if window.period in counter.open:
            return counter.open[window.period]
        counter.require_near(window.period)
        full = len(self.trackers) >= MAX_OPEN_PER_COUNTER * self._settings.max_counters
        if full or self._window_shares.is_full(peer):
            message = "too many windows are open at once (max_counters)"
            raise InvalidParameter("counter", str(window), message=message)
        tracker = counter.open_window(window.period)
        self.trackers[tracker.name] = tracker
        self._window_shares.add(tracker.name, peer)
        tracker.mark_config()
        counter.mark([window.period])
        return tracker

    def close_window(self, counter: WindowedCounter, period: int) -> None:
        tracker = counter.close_window(period)
        del self.trackers[tracker.name]
        self._window_shares.remove(tracker.name)
        self._drop(tracker)
        counter.mark({period} | counter.move_losses([period]))

    def drop_windows(self, counter: WindowedCounter) -> None:
        dropped = counter.drop_windows()
        if dropped:
            counter.mark({*dropped} | counter.move_losses(dropped))

    def _config_for(self, key: Key) -> Config:
        """Of a counter that a site uses for the first time."""
        if not key.is_window or (counter_of_series(key.name) or "") in self.counters:
            return self._config_of_family(key.name)
        return replace(self._settings.defaults, windows=WindowRule(*calendar_fields(key.calendar)))

    def _config_of_family(self, name: str) -> Config:
        """Series have the config of the counter they belong to, or else the default."""
        counter = self.counters.get(counter_of_series(name) or "")
        return counter.config if counter else self._settings.defaults

    def _is_beyond_cap(self, name: str) -> bool:
        family = counter_of_series(name)
        return family is not None and self._series[family] >= self._config_of_family(name).label_cap


def _require_same_windows(key: Key, config: Config) -> None:
    name, rule = key.name, config.windows
    if not key.is_window and rule is not None:
        message = f"counter {name!r} has windows: count it with per={rule.per!r}"
        raise InvalidParameter("counter", name, message=message)
    if key.is_window and rule is None:
        per, *_ = calendar_fields(key.calendar)
        message = f"counter {name!r} has no windows: count it without per; {begin_windows(name, per)} starts some"
        raise InvalidParameter("per", per, message=message)
    if rule is not None and calendar_text(rule.calendar) != key.calendar:
        allowed = f"{rule.calendar!r}, as counter {name!r} has them; to change that, delete the counter"
        raise InvalidParameter("windows", repr(parse_calendar(key.calendar)), allowed)


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
