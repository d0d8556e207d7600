"""What sites send about counters: `Join`, reports, snapshots and `Leave`."""

from collections.abc import Callable
from sys import intern

from countless.core.messages import Report, Snapshot
from countless.errors import InvalidParameter, PlanError
from countless.server.connection import Connection
from countless.server.sessions.dispatcher import Dispatcher
from countless.server.sessions.families.registry import FamilyRegistry
from countless.server.sessions.lifecycle import SessionLifecycle
from countless.server.sessions.membership import Membership
from countless.server.sessions.session_table import Session, group_of
from countless.server.sessions.shares import TombstoneShares
from countless.server.storage.commit import CommitPipeline
from countless.wire.frames import CounterRejected, Join, Leave, LeaveAck


class CounterMessages:
    """Passes them to the coordinator of their counter, if the session is a member of it."""

    def __init__(
        self,
        membership: Membership,
        families: FamilyRegistry,
        lifecycle: SessionLifecycle,
        dispatcher: Dispatcher,
        pipeline: CommitPipeline,
        tombstones: TombstoneShares,
        count_rejected: Callable[[], None],
        max_ignored: int,
    ) -> None:
        self._membership = membership
        self._families = families
        self._lifecycle = lifecycle
        self._dispatcher = dispatcher
        self._pipeline = pipeline
        self._tombstones = tombstones
        self._count_rejected = count_rejected
        self._max_ignored = max_ignored

    def on_message(self, session: Session, connection: Connection, message: Report | Snapshot, size: float) -> None:
        name = message.counter
        if name in session.ignored:
            return
        if name not in session.memberships and session.has_left(name):
            self._pipeline.send(connection, LeaveAck(name))
            return
        counter, site_id = self._membership.lookup(session, name)
        outbox = counter.coordinator.receive(site_id, message)
        counter.traffic.add_up(size)
        self._pipeline.pending.mark_site(counter.name, site_id)
        if outbox:
            self._dispatcher.dispatch(counter, outbox)

    def on_join(self, session: Session, connection: Connection, join: Join, size: float) -> None:
        name = join.counter
        session.unconfirmed.discard(name)
        if name not in session.memberships and session.has_left(name):  # the acknowledgement of its Leave was lost
            session.reject(name, self._max_ignored)
            return self._pipeline.send(connection, LeaveAck(name))
        try:
            self._families.require_no_family(name)
            counter, site_id = self._membership.join(session, name)
            outbox = counter.coordinator.join(site_id, Snapshot(*join))
        except (InvalidParameter, PlanError) as error:
            self._count_rejected()
            session.reject(name, self._max_ignored)
            return self._pipeline.send(connection, CounterRejected(name, str(error)))
        session.stop_ignoring(name)
        session.owed.note_progress()
        if session.join(intern(name), site_id):  # one string for all sessions
            self._tombstones.add(session.peer, session.site_id, [group_of(name) or name])
        counter.traffic.add_up(size)
        self._pipeline.pending.mark_site(counter.name, site_id)
        return self._dispatcher.dispatch(counter, outbox)

    def on_leave(self, session: Session, connection: Connection, leave: Leave, size: float) -> None:
        name = leave.counter
        has_left = name not in session.memberships and session.has_left(name)  # perhaps it joined again, too early
        if name in session.ignored and not has_left:
            return
        if not has_left:
            counter = self._lifecycle.leave(session, Snapshot(*leave), with_count=session.inherited)
            counter.traffic.add_up(size)
        self._pipeline.send(connection, LeaveAck(name))
