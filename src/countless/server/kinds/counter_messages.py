"""What sites send about counters: `Join`, reports, snapshots and `Leave`."""

from collections.abc import Callable, Mapping

from countless.core.messages import Report, Snapshot
from countless.errors import InvalidParameter, PlanError
from countless.server.connection import Connection
from countless.server.kinds.counter import TrackedCounter
from countless.server.kinds.dispatcher import Dispatcher
from countless.server.kinds.family_registry import FamilyRegistry
from countless.server.kinds.lifecycle import SessionLifecycle
from countless.server.kinds.membership import Membership
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import TombstoneShares
from countless.server.storage.commit import CommitPipeline
from countless.wire.frames import CounterRejected, Join, Leave, LeaveAck
from countless.wire.keys import COUNTER, key_of


class CounterMessages:
    """Passes them to the coordinator of their counter, if the session is a member of it."""

    def __init__(
        self,
        trackers: Mapping[str, TrackedCounter],
        membership: Membership,
        families: FamilyRegistry,
        lifecycle: SessionLifecycle,
        dispatcher: Dispatcher,
        pipeline: CommitPipeline,
        tombstones: TombstoneShares,
        count_rejected: Callable[[], None],
        max_ignored: int,
    ) -> None:
        self._trackers = trackers  # by the text that frames have
        self._membership = membership
        self._families = families
        self._lifecycle = lifecycle
        self._dispatcher = dispatcher
        self._pipeline = pipeline
        self._tombstones = tombstones
        self._count_rejected = count_rejected
        self._max_ignored = max_ignored

    def on_message(self, session: Session, connection: Connection, message: Report | Snapshot, size: float) -> None:
        found = self._trackers.get(message.counter)
        key = key_of(COUNTER, message.counter) if found is None else found.key
        if session.ignored and key in session.ignored:
            return
        site_id = session.memberships.get(key)
        if site_id is None and session.has_left(key):
            self._pipeline.send(connection, LeaveAck(message.counter))
            return
        if found is not None and site_id is not None and not site_id.part:
            counter = found
        else:
            counter, site_id = self._membership.lookup(session, key)
        outbox = counter.coordinator.receive(site_id, message)
        counter.traffic.add_up(size)
        counter.mark_site(site_id)
        if outbox:
            self._dispatcher.dispatch(counter, outbox)

    def on_join(self, session: Session, connection: Connection, join: Join, size: float) -> None:
        key = key_of(COUNTER, join.counter)
        session.unconfirmed.discard(key)
        if key not in session.memberships and session.has_left(key):  # the acknowledgement of its Leave was lost
            session.reject(key, self._max_ignored)
            return self._pipeline.send(connection, LeaveAck(join.counter))
        try:
            self._families.require_no_family(key)
            counter, site_id = self._membership.join(session, key)
            outbox = counter.coordinator.join(site_id, Snapshot(*join))
        except (InvalidParameter, PlanError) as error:
            self._count_rejected()
            session.reject(key, self._max_ignored)
            return self._pipeline.send(connection, CounterRejected(join.counter, str(error)))
        session.stop_ignoring(key)
        session.owed.note_progress()
        if session.join(key if site_id.part else counter.key, site_id):  # one key for all sessions
            self._tombstones.add(session.peer, session.site_id, [(key.windows if key.is_window else key, None)])
        counter.traffic.add_up(size)
        counter.mark_site(site_id)
        return self._dispatcher.dispatch(counter, outbox)

    def on_leave(self, session: Session, connection: Connection, leave: Leave, size: float) -> None:
        key = key_of(COUNTER, leave.counter)
        has_left = key not in session.memberships and session.has_left(key)  # perhaps it joined again, too early
        if key in session.ignored and not has_left:
            return
        if not has_left:
            counter = self._lifecycle.leave(session, key, Snapshot(*leave), with_count=session.inherited)
            counter.traffic.add_up(size)
        self._pipeline.send(connection, LeaveAck(leave.counter))
