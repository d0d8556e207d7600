"""Mistakes that are easily made with sessions that end, and with units that are handed in; seeds must find each."""

import pytest

from countless.client.budgets.local_budget import LocalBudget
from countless.client.durable.budget import DurableBudget
from countless.client.kinds.member import Known
from countless.client.session.protocol import SessionRetired, SiteSession
from countless.core.messages import SiteId
from countless.server.connection import Connection
from countless.server.kinds.budgets import Budgets
from countless.server.sessions.lifecycle import SessionLifecycle
from countless.server.sessions.session_table import Session
from countless.server.site_server import SiteServer
from countless.server.storage.memory_store import MemoryStore
from countless.wire.budgets import BudgetLeave
from countless.wire.frames import IncarnationExpired, UpItem


def does_not_see_that_the_last_forgotten_incarnation_has_expired(patch: pytest.MonkeyPatch) -> None:
    """The horizon is too early by one."""
    patch.setattr(MemoryStore, "tombstone_horizon", lambda self: self._horizon - 1)


def sends_everything_again_when_it_has_expired(patch: pytest.MonkeyPatch) -> None:
    def expired(self: SiteSession, item: IncarnationExpired) -> SessionRetired:
        return SessionRetired(Known(), item.incarnation)

    patch.setattr(SiteSession, "_expired", expired)


def ends_the_new_connection_with_the_old_one(patch: pytest.MonkeyPatch) -> None:
    original = SessionLifecycle.disconnect

    def disconnect(self: SessionLifecycle, session: Session, connection: Connection) -> None:
        original(self, session, session.connection or connection)

    patch.setattr(SessionLifecycle, "disconnect", disconnect)


def accepts_frames_of_a_replaced_connection(patch: pytest.MonkeyPatch) -> None:
    original = SiteServer.on_frame

    def on_frame(self: SiteServer, session: Session, connection: Connection, items: list[UpItem], size: int) -> None:
        original(self, session, session.connection or connection, items, size)

    patch.setattr(SiteServer, "on_frame", on_frame)


def counts_units_again_that_are_handed_in_again(patch: pytest.MonkeyPatch) -> None:
    original = Budgets.on_leave

    def on_leave(self: Budgets, session: Session, connection: Connection, leave: BudgetLeave, size: float) -> None:
        site_id, found = SiteId(session.site_id.site, leave.incarnation), self._find(leave.budget)
        if found is not None and found.coordinator.saved_site(site_id) is None:
            self._members.dispatch(found, self.losses.leave(found, site_id, leave.spent))
        original(self, session, connection, leave, size)

    patch.setattr(Budgets, "on_leave", on_leave)


def holds_units_that_are_not_in_the_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DurableBudget, "reserve", LocalBudget.reserve)
