"""How sessions end: a connection is lost, a session times out, and at last it is retired.

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
from math import inf

from countless.core.budget.messages import BudgetId
from countless.core.messages import Snapshot
from countless.server.connection import Connection
from countless.server.kinds.budgets import Budgets
from countless.server.kinds.counter import TrackedCounter
from countless.server.kinds.counter_registry import CounterRegistry
from countless.server.kinds.dispatcher import Dispatcher
from countless.server.kinds.families import Families
from countless.server.kinds.membership import Membership
from countless.server.sessions.awaited_answers import AwaitedAnswers
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.sessions.shares import TombstoneShares
from countless.server.settings import Settings
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import Tombstone, What
from countless.wire.keys import BUDGET, FAMILY, Key

log = logging.getLogger("countless.sessions")

SESSIONS_PER_SLICE = 500  # checked for time-outs in one go: one or two milliseconds


class SessionLifecycle:
    def __init__(
        self,
        sessions: SessionTable,
        registry: CounterRegistry,
        membership: Membership,
        budgets: Budgets,
        families: Families,
        dispatcher: Dispatcher,
        pipeline: CommitPipeline,
        tombstones: TombstoneShares,
        settings: Settings,
        clock: Callable[[], float],
        dropped: Tally[str],
    ) -> None:
        self._sessions = sessions
        self._registry = registry
        self._membership = membership
        self._budgets = budgets
        self._families = families
        self._dispatcher = dispatcher
        self._pipeline = pipeline
        self._tombstones = tombstones
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
        session.end_connection()
        self._families.end_connection(session)
        self._sessions.remove_if_unused(session)

    def expire_in_slices(self) -> Iterator[None]:
        """Mark sessions that timed out, and retire those that will not come back. Yields between slices."""
        now, silent_after, forget_after = self._clock(), self._settings.silent_after, self._settings.forget_after
        if self._pipeline.health.lag_s <= silent_after / 4:  # otherwise sites wait for requests that wait for the disk
            self._answer_time += now - self._last_tick
        self._last_tick = now
        for number, session in enumerate(self._sessions, start=1):
            if number % SESSIONS_PER_SLICE == 0:
                yield
            self._families.lift_limit(session)
            if not session.unreachable and session.timed_out(now, silent_after):
                self._mark_unreachable(session, "timed out: no heartbeat")
            elif not session.unreachable and session.owed and self._is_late(session):
                self._mark_unreachable(session, "timed out: no answer to a request of the coordinator")
            if session.unreachable and session.is_member:
                expired = 0 < forget_after < now - session.last_seen
                if expired or self._sessions.has_successor(session):
                    self.retire_lost(session)
                elif now >= session.free_at:
                    self._budgets.free_lost(session)

    def _is_late(self, session: Session) -> bool:
        awaited_round = partial(self._awaited_round, session)
        if not session.owed.is_late(self._answer_time, self._settings.silent_after, awaited_round):
            return False
        self._dropped["no answer"] += 1
        log.warning(
            "site timed out, a request was not answered: site=%r request=%r", session.site_id.site, session.owed.oldest
        )
        return True

    def _awaited_round(self, session: Session, request: Key) -> int | None:
        if request.kind == BUDGET:
            return self._budgets.awaited_round(session.site_id, BudgetId(request.name, request.period))
        if request.kind == FAMILY:
            return self._families.awaited_round(session.site_id, request)
        if request not in session.memberships:
            return None
        counter, site_id = self._membership.lookup(session, request)
        return counter.coordinator.awaited(site_id)

    def _mark_unreachable(self, session: Session, reason: str) -> None:
        session.unreachable, session.free_at, session.owed = True, 0.0, AwaitedAnswers()
        if session.connection is not None:
            session.connection.close(1001, reason)
            self.disconnect(session, session.connection)
        for _, counter, site_id in self._membership.of(session):
            self._dispatcher.dispatch(counter, counter.coordinator.mark_unreachable(site_id))
        self._budgets.losses.mark_unreachable(session)
        self._families.mark_unreachable(session)

    def retire_lost(self, session: Session) -> None:
        """It will not come back, as it seems. After a restore an operator decides that: see `BudgetRestore`."""
        if not self._budgets.unheard(session):
            self.retire(session)

    def retire(self, session: Session, lost: bool = True) -> None:
        """Leave all counters with the counts that are known, and give up the limits of its budgets.

        `lost`: it may have counted events that will never be delivered.
        """
        self._budgets.losses.retire(session)
        self._give_up(session, sorted(session.memberships), lost)
        self._families.retire(session, lost)
        self._sessions.remove(session)

    def renew(self, session: Session) -> None:
        """It says hello, and something of it was delivered from a file that it did not write: one of both is a copy. It
        is sent what is known, and delivers the rest as a new incarnation.
        """
        log.warning("session renewed, because something of it was delivered by others: site=%r", session.site_id.site)
        self.replaced["session"] += 1
        if session.connection is not None:
            self.replace(session, session.connection)
            self.disconnect(session, session.connection)
        self._budgets.await_hand_ins()
        self.retire(session, lost=False)

    def replace(self, session: Session, connection: Connection) -> None:
        """Close its connection, because there is another one."""
        log.warning("live connection replaced by another of the same incarnation: site=%r", session.site_id.site)
        self.replaced["connection"] += 1
        connection.close(1008, "replaced by another connection of the same incarnation; was its state_dir copied?")

    def lose_unconfirmed(self, session: Session) -> None:
        """The site does not know windows that it is a member of: our state is an older copy, and it has left them."""
        unconfirmed, session.unconfirmed = session.unconfirmed, set()
        self._families.lose_unconfirmed(session, unconfirmed)
        self._give_up(session, sorted(unconfirmed.intersection(session.memberships)))

    def _give_up(self, session: Session, keys: list[Key], lost: bool = True) -> None:
        windows: dict[str, list[int]] = {}  # by counter with windows: those that it was a member of
        for key in keys:
            tracker, site_id = self._membership.lookup(session, key)
            count = tracker.coordinator.reported_by(site_id)
            self.leave(session, key, Snapshot(str(key), tracker.coordinator.round, count), with_count=True)
            if key.is_window:
                windows.setdefault(tracker.key.name, []).append(key.period)
        for counter, periods in windows.items() if lost else ():
            self._registry.lose_site(counter, min(periods), max(periods))

    def leave(self, session: Session, key: Key, final: Snapshot, with_count: bool) -> TrackedCounter:
        """The session leaves a counter, which is returned. The tombstone has the larger of final and known count.

        A site leaves its windows in order. So one tombstone says that it has left all windows before a period. Only if
        the process may come back and know more, each window has one `with_count`.
        """
        counter, site_id = self._membership.lookup(session, key)
        count = max(final.count, counter.coordinator.reported_by(site_id))
        outbox = counter.coordinator.leave(site_id, final)
        session.leave(key)
        if key.is_window:
            self._registry.windowed[counter.key.name].sweep_at = -inf
        if key.is_window and not with_count:
            first = session.windows_left[key.windows] = max(session.windows_left[key.windows], key.period + 1)
            tombstone = Tombstone(session.site_id, key.windows, What.WATERMARK, first)
        else:
            session.left.add(key)
            session.delivered |= session.inherited
            if key.is_window:
                self._tombstones.add(session.peer, session.site_id, [(key, None)])
            tombstone = Tombstone(session.site_id, key, What.COUNT, count)
        counter.mark_left(site_id)
        self._pipeline.add_tombstones(tombstone)
        self._dispatcher.dispatch(counter, outbox)
        return counter
