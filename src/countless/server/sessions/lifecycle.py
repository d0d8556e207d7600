"""The end of sessions: a connection is lost, a session times out, and at last it is retired.

    connected    -- connection lost ------------------------------> away
    connected    -- no heartbeat, or no answer, in time ----------> unreachable
    away         -- no new connection within silent_after --------> unreachable
    unreachable  -- connects again -------------------------------> connected
    unreachable  -- another incarnation connects, forget_after ---> retired

An unreachable session degrades the answers of its counters. A retired one does not exist any more: its counts stay in
the totals for good, and a tombstone with them is saved, so that the process is not counted twice if it comes back.
"""

import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from functools import partial

from countless.server.connection import Connection
from countless.server.sessions.awaited_answers import AwaitedAnswers
from countless.server.sessions.members import Members
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.settings import Settings
from countless.server.storage.commit import CommitPipeline

log = logging.getLogger("countless.sessions")

SESSIONS_PER_SLICE = 500  # checked for time-outs in one go: one or two milliseconds


class SessionLifecycle:
    def __init__(
        self,
        sessions: SessionTable,
        members: Members,
        pipeline: CommitPipeline,
        settings: Settings,
        clock: Callable[[], float],
        dropped: Tally[str],
    ) -> None:
        self._sessions = sessions
        self._members = members
        self._kinds = members.kinds
        self._pipeline = pipeline
        self._dropped = dropped
        self._settings = settings
        self._clock = clock
        # Connections by others of the same incarnation; sessions because another process had delivered something.
        self.replaced = Tally({"connection": 0, "session": 0})
        self._last_tick = clock()
        self._answer_time = 0.0  # seconds in which requests were sent soon after they were made

    def disconnect(self, session: Session, connection: Connection) -> None:
        """The session may continue on another connection; without memberships there is nothing to continue."""
        self._pipeline.discard(connection)
        if session.connection is not connection:
            return
        if not session.unreachable:
            session.last_seen = self._clock()
        session.connection = None
        session.owed.note_progress()
        self.end_connection(session)
        self._sessions.remove_if_unused(session)

    def end_connection(self, session: Session) -> None:
        """Forget what belongs to its connection."""
        session.end_connection()
        for kind in self._kinds.values():
            kind.end_connection(session)

    def expire_in_slices(self) -> Iterator[None]:
        """Mark sessions that timed out, and retire those that will not come back. Yields between slices."""
        now, silent_after, forget_after = self._clock(), self._settings.silent_after, self._settings.forget_after
        if self._pipeline.health.lag_s <= silent_after / 4:  # otherwise sites wait for requests that wait for the disk
            self._answer_time += now - self._last_tick
        self._last_tick = now
        for number, session in enumerate(self._sessions, start=1):
            if number % SESSIONS_PER_SLICE == 0:
                yield
            for kind in self._kinds.values():
                kind.look_at(session)
            if not session.unreachable and session.timed_out(now, silent_after):
                self._mark_unreachable(session, "timed out: no heartbeat")
            elif not session.unreachable and session.owed and self._is_late(session):
                self._mark_unreachable(session, "timed out: no answer to a request of the coordinator")
            if session.unreachable and session.is_member:
                expired = 0 < forget_after < now - session.last_seen
                if expired or self._sessions.has_successor(session):
                    self.retire_lost(session)
                elif now >= session.free_at:
                    session.free_at = min(kind.free(session) for kind in self._kinds.values())

    def _is_late(self, session: Session) -> bool:
        awaited_round = partial(self._members.awaited, session)
        if not session.owed.is_late(self._answer_time, self._settings.silent_after, awaited_round):
            return False
        self._dropped["no answer"] += 1
        log.warning(
            "site timed out, a request was not answered: site=%r request=%r", session.site_id.site, session.owed.oldest
        )
        return True

    def _mark_unreachable(self, session: Session, reason: str) -> None:
        session.unreachable, session.free_at, session.owed = True, 0.0, AwaitedAnswers()
        if session.connection is not None:
            session.connection.close(1001, reason)
            self.disconnect(session, session.connection)
        self._members.mark_unreachable(session)

    def retire_lost(self, session: Session) -> None:
        """It will not come back, as it seems. Of some sessions only an operator decides that: see `Kind.keeps`."""
        if not any(kind.keeps(session) for kind in self._kinds.values()):
            self._members.retire(session)

    def renew(self, session: Session) -> None:
        """It says hello, and something of it was delivered from a file that it did not write: one of both is a copy. It
        is sent what is known, and delivers the rest as a new incarnation.
        """
        log.warning("session renewed, because something of it was delivered by others: site=%r", session.site_id.site)
        self.replaced["session"] += 1
        if session.connection is not None:
            self.replace(session, session.connection)
            self.disconnect(session, session.connection)
        for kind in self._kinds.values():
            kind.renewed()
        self._members.retire(session, lost=False)

    def replace(self, session: Session, connection: Connection) -> None:
        """Close its connection, because there is another one."""
        log.warning("live connection replaced by another of the same incarnation: site=%r", session.site_id.site)
        self.replaced["connection"] += 1
        connection.close(1008, "replaced by another connection of the same incarnation; was its state_dir copied?")
