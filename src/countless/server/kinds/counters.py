"""All counters of a coordinator: what sites send about them, where that is counted, and what operators may change.

Label values come from outside, and every series is a counter of its own. So a counter has at most `label_cap` labelled
series, over all its sites together; a series beyond the cap is counted in the counter's overflow series: see `Members`.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace

from countless.core.messages import DownMessage, Outbox, Report, SiteId, Snapshot, StartRound
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter
from countless.server.connection import Connection
from countless.server.kinds.counter import AnyCounter, SavedCounter, TrackedCounter, WindowedCounter
from countless.server.kinds.planner import Planner
from countless.server.sessions.counted_kind import (
    CountedKind,
    begin_windows,
    require_no_site,
    require_same_calendar,
    require_same_windows,
)
from countless.server.sessions.members import Answers, id_in, watermark
from countless.server.sessions.service import Service
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import UNLIMITED
from countless.server.settings import Config, require_config
from countless.server.storage.rows import KeyRows, Tombstone, What
from countless.wire.frames import CounterRejected, DownItem, Join, Leave, LeaveAck, Rejoin
from countless.wire.keys import (
    COUNTER,
    Key,
    calendar_fields,
    counter_of,
    counter_of_series,
    key_of,
    parse_calendar,
    require_one,
)


class Counters(CountedKind[TrackedCounter, WindowedCounter, Config]):
    """Labelled series are counters of their own, with the config of the counter that they belong to. `overflowed` has,
    by counter, how many of its series were counted in the overflow series.
    """

    name = COUNTER
    spec_type = Config

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.labelled: dict[str, dict[str, None]] = {}  # by counter: its labelled series, and its overflow series
        self.overflowed: Tally[str] = Tally()
        self.planner = Planner(service.tuning.planning())
        self.handlers = {
            Report: self.on_message,
            Snapshot: self.on_message,
            Join: self._on_join,
            Leave: self._on_leave,
        }
        self._series: Tally[str] = Tally()  # by counter: its labelled series
        limit = service.settings.max_counters_per_site
        self._answers = Answers(LeaveAck, CounterRejected, limit, "max_counters_per_site")

    @property
    def names(self) -> Iterable[str]:
        """All names, also of counters that have labelled series only."""
        return {**self.by_name, **self.labelled}

    # What sites send

    def on_message(self, session: Session, connection: Connection, message: Report | Snapshot, size: float) -> None:
        found = self.trackers.get(message.counter)
        key = key_of(COUNTER, message.counter) if found is None else found.key
        if session.ignored and key in session.ignored:
            return
        tracked = session.members.get(key)
        if tracked is None and session.has_left(key):
            self._pipeline.send(connection, LeaveAck(message.counter))
            return
        if tracked is found and found is not None:
            counter, site_id = found, session.site_id
        else:
            counter, site_id = self._lookup(session, key)
        outbox = counter.coordinator.receive(site_id, message)
        counter.traffic.add_up(size)
        counter.mark_site(site_id)
        if outbox:
            self._members.dispatch(counter, outbox)

    def _on_join(self, session: Session, connection: Connection, join: Join, size: float) -> None:
        key = key_of(COUNTER, join.counter)

        def admit() -> tuple[TrackedCounter, Outbox]:
            counter = self._lookup(session, key)[0] if key in session.members else self._tracker_of(session, key)
            return counter, counter.coordinator.join(id_in(session, key, counter), Snapshot(*join))

        tracked = self._members.join(session, connection, key, self._answers, admit)
        if tracked is not None:
            tracked.traffic.add_up(size)

    def _tracker_of(self, session: Session, key: Key) -> TrackedCounter:
        tracked = self.tracker_for(key, session.peer)
        if tracked.key != key and key.windows not in session.windows_left:
            self.overflowed[key.root] += 1
        return tracked

    def _lookup(self, session: Session, key: Key) -> tuple[TrackedCounter, SiteId]:
        """As `Members.lookup`."""
        tracked, site_id = self._members.lookup(session, key)
        return self.trackers[str(tracked.key)], site_id

    def _on_leave(self, session: Session, connection: Connection, leave: Leave, size: float) -> None:
        key = key_of(COUNTER, leave.counter)
        has_left = key not in session.members and session.has_left(key)  # perhaps it joined again, too early
        if key in session.ignored and not has_left:
            return
        if not has_left:
            counter, site_id = self._lookup(session, key)
            count = max(leave.count, counter.coordinator.reported_by(site_id))
            outbox = counter.coordinator.leave(site_id, Snapshot(*leave))
            in_order = key.is_window and not session.inherited
            left = watermark(session, key) if in_order else Tombstone(session.site_id, key, What.COUNT, count)
            self._members.leave(session, key, [left], outbox)
            counter.traffic.add_up(size)
        self._pipeline.send(connection, LeaveAck(leave.counter))

    # What they are sent

    def down_item(self, session: Session, key: Key, message: DownMessage) -> DownItem:
        name = str(key)
        return message if message.counter == name else message._replace(counter=name)

    def asks(self, message: DownMessage) -> bool:
        return isinstance(message, StartRound)

    def saves(self, message: DownMessage) -> bool:
        return False

    def known_counts(self, tombstones: Iterable[Tombstone]) -> list[tuple[str, int]]:
        return [(str(each.key), each.value) for each in tombstones]

    def frame_sent(self, items: Sequence[DownItem], size: int) -> None:
        for item in items:
            if isinstance(item, DownMessage) and item.counter in self.trackers:
                self.trackers[item.counter].traffic.down_bytes += size / len(items)

    def reset_item(self, text: str) -> DownItem:
        return Rejoin(text)

    # Sessions that begin and end

    def recover(self) -> None:
        for tracked in self.trackers.values():
            self._members.dispatch(tracked, tracked.coordinator.recover())

    def lose(self, session: Session, key: Key, site_id: SiteId, lost: bool) -> tuple[Outbox, list[Tombstone]]:
        coordinator = self._lookup(session, key)[0].coordinator
        count = coordinator.reported_by(site_id)
        return coordinator.give_up(site_id), [Tombstone(session.site_id, key, What.COUNT, count)]

    def tick(self) -> Iterator[None]:
        yield from super().tick()
        yield from self.planner.plan_in_slices(self.trackers.values())

    def stop(self) -> None:
        self.planner.stop()

    # Names and series

    def parts(self, name: str) -> list[AnyCounter]:
        """The parts of which a counter is the sum: its events without labels, and its labelled series."""
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
        if self._service.names.kind_of(key.root) not in (None, COUNTER):
            message = f"{key.root!r} is a family: count it with family=True"
            raise InvalidParameter("counter", str(key), message=message)

    def _tracker(self, key: Key, spec: Config, rows: KeyRows | None = None) -> TrackedCounter:
        return TrackedCounter(key, spec, self._service.around, None if rows is None else SavedCounter.of(key, rows))

    def _windows(self, key: Key, spec: Config) -> WindowedCounter:
        return WindowedCounter(key, spec, self._service.around)

    def configure(self, name: str, config: Config) -> None:
        """Replace the config of a counter; its labelled series get what differs from the present one. Its sites keep
        their counts and get the new rules in a new round; with windows, in the next window that is opened.

        Without windows, alpha may only grow, because the published total cannot be taken back. A counter gets windows
        if no site counts it.
        """
        before = self.spec_of(name)
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
        for part, each in given:
            if each != part.spec:
                self._replace(part, each)

    def _require_change(self, part: AnyCounter, config: Config) -> None:
        if isinstance(part, WindowedCounter):
            require_same_calendar(part.calendar, config.windows)
        elif config.windows is None and config.alpha < part.spec.alpha:
            raise InvalidParameter("alpha", config.alpha, f"at least {part.spec.alpha}, which it has had so far")

    def _replace(self, part: AnyCounter, config: Config) -> None:
        if isinstance(part, WindowedCounter):
            part.reconfigure(config)
        elif config.windows is not None:
            self._begin_windows(part, config)
        else:
            part.reconfigure(config)
            self._begin_round(part)

    def _begin_round(self, counter: TrackedCounter) -> None:
        self._members.dispatch(counter, counter.coordinator.recover())
        for session in self._service.sessions:
            for key in self._members.keys_in(session, counter) if session.unreachable else ():
                site_id = id_in(session, key, counter)
                self._members.dispatch(counter, counter.coordinator.mark_unreachable(site_id))

    def _remove(self, name: str) -> None:
        super()._remove(name)
        self._series.subtract(filter(None, [counter_of_series(name)]))
        parent = counter_of(name)
        if parent is not None:
            del self.labelled[parent][name]
            if not self.labelled[parent]:
                del self.labelled[parent]

    # Where sites are counted

    def tracker_for(self, key: Key, peer: str = UNLIMITED) -> TrackedCounter:
        """Return where a site's events of this key are counted: the counter or window, created if there is none, or for
        a series beyond the cap the overflow series. A rejected key changes nothing.
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
        """The config of a counter that a site uses for the first time."""
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
