"""The budgets of a coordinator: their rules, and which sessions hold a part of them.

A site that asks is a holder from then on. When its session times out, its limit counts as spent until it is back; when
the session is retired, for good, unless a later incarnation of the site hands in what was spent.
"""

from collections.abc import Callable, Iterable

from countless.core.budget.amounts import MAX_AMOUNT, require_amount, require_slack
from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Ask, BudgetId, Grant, Outbox, Recall
from countless.core.messages import SiteId
from countless.errors import InvalidParameter, ProtocolError, UnknownName
from countless.server.connection import Connection
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.storage.base import SavedBudget
from countless.server.storage.commit import CommitPipeline
from countless.wire.frames import BudgetLeave, BudgetLeaveAck, BudgetRejected, BudgetReset
from countless.wire.names import validate_name

MAX_BUDGETS = 10_000  # in all
MAX_BUDGETS_PER_SITE = 1_000  # one site cannot fill the memory with its memberships


class Budgets:
    """All budgets by name. Every change is marked for the next commit, before the messages it causes."""

    def __init__(
        self,
        by_name: dict[str, BudgetCoordinator],
        sessions: SessionTable,
        pipeline: CommitPipeline,
        clock: Callable[[], float],
    ) -> None:
        self.by_name = by_name
        self._sessions = sessions
        self._pipeline = pipeline
        self._clock = clock

    def recover(self, saved: dict[str, SavedBudget]) -> None:
        """After a restart: every holder is recalled, and nothing is granted until all answered or timed out."""
        for name, budget in saved.items():
            limit, slack, *_ = budget.fields
            coordinator = BudgetCoordinator(BudgetId(name), limit, slack=slack, saved_state=budget.state)
            self.by_name[name] = coordinator
            for site_id, site in budget.sites.items():
                if not site.departed and not site.given_up:
                    self._sessions.open(site_id, self._clock()).budgets.add(name)
            self._dispatch(name, (), coordinator.recover())

    # Operators

    def get(self, name: str) -> BudgetCoordinator:
        try:
            return self.by_name[name]
        except KeyError:
            raise UnknownName("budget", name, self.by_name) from None

    def create(self, name: str, limit: int, slack: float) -> BudgetCoordinator:
        validate_name(name, "name")
        if name in self.by_name:
            raise InvalidParameter("name", name, "a name that is not taken")
        if len(self.by_name) >= MAX_BUDGETS:
            raise InvalidParameter("name", name, f"one of at most {MAX_BUDGETS} budgets")
        budget = self.by_name[name] = BudgetCoordinator(BudgetId(name), limit, slack=slack)
        self._pipeline.mark_budget(name, ())
        return budget

    def configure(self, name: str, limit: int | None, slack: float | None) -> BudgetCoordinator:
        """Change what is given. A limit below what is known to be spent is refused."""
        budget = self.get(name)
        limit = budget.limit if limit is None else limit
        require_amount("limit", limit)
        if slack is not None:
            require_slack(slack)
        spent = budget.usage.lower
        if limit < spent and limit < budget.limit:
            raise InvalidParameter("limit", limit, f"from {spent}, the units spent already, to {MAX_AMOUNT} (2**62)")
        self._dispatch(name, (), budget.set_limit(limit, slack))
        return budget

    def delete(self, name: str) -> None:
        """Delete a budget. Connected holders may spend nothing more of it."""
        self.get(name)
        del self.by_name[name]
        self._pipeline.mark_budget_deleted(name)
        for session in self._sessions:
            if name in session.budgets:
                session.budgets.discard(name)
                if session.connection is not None:
                    self._reject(session.connection, name, f"budget {name!r} was deleted")
                elif not session.memberships and not session.budgets:
                    self._sessions.remove(session)

    # Sites

    def on_ask(self, session: Session, connection: Connection, ask: Ask) -> None:
        """The first Ask on a connection is sent again what may have been lost with the connection before."""
        name, site_id = ask.budget.name, session.site_id
        budget = self.by_name.get(name)
        if budget is None or ask.budget != budget.budget:
            return self._reject(connection, name, f"there is no budget {name!r}")
        known = budget.saved_site(site_id)
        if known is None and (ask.limit or ask.round):  # granted by a budget of this name that was deleted
            return self._pipeline.send(connection, BudgetReset(ask.budget))
        if known is None and len(session.budgets) >= MAX_BUDGETS_PER_SITE:
            return self._reject(connection, name, f"a site may use {MAX_BUDGETS_PER_SITE} budgets")
        if known is not None and (known.departed or known.given_up):
            return self._reject(connection, name, "this incarnation has left the budget: start a new one")
        receive = budget.receive if name in session.asked else budget.join
        outbox = receive(site_id, ask)
        session.asked.add(name)
        session.budgets.add(name)
        return self._dispatch(name, (site_id,), outbox)

    def on_leave(self, session: Session, connection: Connection, leave: BudgetLeave) -> None:
        """The units that an incarnation of the session's site has spent. A repeated one is acknowledged again."""
        name, site_id = leave.budget.name, SiteId(session.site_id.site, leave.incarnation)
        budget, holder = self.by_name.get(name), self._sessions.get(site_id)
        if holder is not None and holder is not session and holder.connection is not None:
            raise ProtocolError(f"{site_id} is connected, and hands in what it spent itself")
        known = None if budget is None else budget.saved_site(site_id)
        if budget is not None and known is not None and not known.departed:
            if leave.spent > known.limit:
                raise ProtocolError(f"{site_id} spent {leave.spent} of {name!r}; its limit is {known.limit}")
            self._dispatch(name, (site_id,), budget.leave(site_id, leave.spent))
        if holder is not None:
            holder.budgets.discard(name)
            if holder.connection is None and not holder.memberships and not holder.budgets:
                self._sessions.remove(holder)
        self._pipeline.send(connection, BudgetLeaveAck(leave.budget, leave.incarnation))

    def mark_unreachable(self, session: Session) -> None:
        for name in sorted(session.budgets):
            self._dispatch(name, (session.site_id,), self.by_name[name].mark_unreachable(session.site_id))

    def retire(self, session: Session) -> None:
        for name in sorted(session.budgets):
            self._dispatch(name, (session.site_id,), self.by_name[name].give_up(session.site_id))
        session.budgets.clear()

    def retired(self, site_id: SiteId) -> bool:
        """Whether this incarnation has left a budget, or was given up: it must not ask again."""
        saved = (budget.saved_site(site_id) for budget in self.by_name.values())
        return any(each is not None and (each.departed or each.given_up) for each in saved)

    def _reject(self, connection: Connection, name: str, reason: str) -> None:
        self._pipeline.send(connection, BudgetRejected(BudgetId(name), reason))

    def _dispatch(self, name: str, changed: Iterable[SiteId], outbox: Outbox) -> None:
        """Messages to sites without a connection are dropped: they are sent again when the site asks."""
        granted = [site_id for site_id, message in outbox if isinstance(message, Grant)]
        self._pipeline.mark_budget(name, (*changed, *granted))
        for site_id, message in outbox:
            session = self._sessions.get(site_id)
            if session is None or session.connection is None:
                continue
            if isinstance(message, Recall) and session.awaiting_since is None:
                session.awaiting_since = self._clock()
            self._pipeline.send(session.connection, message)
