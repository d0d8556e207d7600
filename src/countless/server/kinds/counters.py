"""Counters, for the sessions of sites: what sites send about them, and where that is counted.

Label values come from outside, and every series is a counter of its own. So a counter has at most `label_cap` labelled
series, over all its sites together; a series beyond the cap is counted in the counter's overflow series: see `Members`.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence

from countless.core.messages import DownMessage, Outbox, Report, SiteId, Snapshot, StartRound
from countless.server.connection import Connection
from countless.server.kinds.counter import AnyCounter, TrackedCounter, WindowedCounter
from countless.server.kinds.counter_objects import CounterObjects
from countless.server.sessions.joining import Answers, Joining
from countless.server.sessions.kind import Kind
from countless.server.sessions.members import Members, id_in, watermark
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.settings import Config
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import KeyRows, Tombstone, What
from countless.wire.frames import CounterRejected, DownItem, Join, Leave, LeaveAck, Rejoin
from countless.wire.keys import COUNTER, Key, key_of


class Counters(Kind):
    """`overflowed` has by counter how many of its labelled series were counted in the overflow series."""

    name = COUNTER

    def __init__(
        self,
        objects: CounterObjects,
        sessions: SessionTable,
        members: Members,
        joining: Joining,
        pipeline: CommitPipeline,
        max_per_site: int,
    ) -> None:
        self.overflowed: Tally[str] = Tally()
        self.handlers = {
            Report: self.on_message,
            Snapshot: self.on_message,
            Join: self._on_join,
            Leave: self._on_leave,
        }
        self._objects = objects
        self._trackers: Mapping[str, TrackedCounter] = objects.trackers
        self._sessions = sessions
        self._members = members
        self._joining = joining
        self._pipeline = pipeline
        self._answers = Answers(LeaveAck, CounterRejected, max_per_site, "max_counters_per_site")

    # What sites send

    def on_message(self, session: Session, connection: Connection, message: Report | Snapshot, size: float) -> None:
        found = self._trackers.get(message.counter)
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
            counter = self._lookup(session, key)[0] if key in session.members else self._tracker_for(session, key)
            return counter, counter.coordinator.join(id_in(session, key, counter), Snapshot(*join))

        tracked = self._joining.join(session, connection, key, self._answers, admit)
        if tracked is not None:
            tracked.traffic.add_up(size)

    def _tracker_for(self, session: Session, key: Key) -> TrackedCounter:
        tracked = self._objects.tracker_for(key, session.peer)
        if tracked.key != key and key.windows not in session.windows_left:
            self.overflowed[key.root] += 1
        return tracked

    def _lookup(self, session: Session, key: Key) -> tuple[TrackedCounter, SiteId]:
        """As `Members.lookup`."""
        tracked, site_id = self._members.lookup(session, key)
        return self._trackers[str(tracked.key)], site_id

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
            if isinstance(item, DownMessage) and item.counter in self._trackers:
                self._trackers[item.counter].traffic.down_bytes += size / len(items)

    # Sessions that begin and end

    def load(self, saved: Iterable[tuple[Key, KeyRows]]) -> Iterator[tuple[SiteId, Key, TrackedCounter]]:
        self._objects.load(saved)
        for tracked in self._trackers.values():
            for site_id in tracked.members:
                key = tracked.key.of_part(site_id.part) if site_id.part else tracked.key
                yield site_id._replace(part=""), key, tracked

    def recover(self) -> None:
        for tracked in self._trackers.values():
            self._members.dispatch(tracked, tracked.coordinator.recover())

    def lose(self, session: Session, key: Key, site_id: SiteId, lost: bool) -> tuple[Outbox, list[Tombstone]]:
        coordinator = self._lookup(session, key)[0].coordinator
        count = coordinator.reported_by(site_id)
        return coordinator.give_up(site_id), [Tombstone(session.site_id, key, What.COUNT, count)]

    def tick(self) -> Iterator[None]:
        return self._objects.sweep_in_slices()

    # Operators

    def create(self, name: str, config: Config) -> AnyCounter:
        return self._objects.create(name, config)

    def configure(self, name: str, config: Config) -> AnyCounter:
        """Change the config of a counter, and of its labelled series. Its sites keep their counts and get the new rules
        in a new round; with windows, in the next window that is opened.
        """
        for counter in self._objects.configure(name, config):
            self._members.dispatch(counter, counter.coordinator.recover())
            for session in self._sessions:
                for key in self._members.keys_in(session, counter) if session.unreachable else ():
                    site_id = id_in(session, key, counter)
                    self._members.dispatch(counter, counter.coordinator.mark_unreachable(site_id))
        return self._objects.get(name)

    def delete(self, name: str) -> None:
        """Delete a counter with its labelled series. Connected sites join it again, or its present window, with a count
        of zero.
        """
        for part in self._objects.parts(name) or [self._objects.get(name)]:
            trackers = [*part.open.values()] if isinstance(part, WindowedCounter) else [part]
            self._members.begin_again(trackers, [part.key, Key(COUNTER, part.name)], lambda key: Rejoin(str(key)))
            self._objects.remove(part.name)
