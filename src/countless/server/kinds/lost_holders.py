"""What becomes of the units of sites that are lost: retired without having handed them in, or unreachable for long.

| budget                | when the session is retired                       | while it is only unreachable             |
|-----------------------|---------------------------------------------------|------------------------------------------|
| `on_loss` is `charge` | the site is given up: its limit counts as spent,  | its limit counts as spent from the next  |
|                       | unless it hands in what it spent                  | recall on                                |
| `on_loss` is `free`   | only what it has reported counts                  | the same                                 |
| rolling               | as above, until a lease and a window have passed  | the same; then it is forgotten           |
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import BudgetId, Outbox
from countless.core.budget.rule import FREE, IN_FLIGHT
from countless.core.messages import SiteId
from countless.server.kinds.budget_periods import BudgetPeriods
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import UNLIMITED, Amounts

MAX_GIVEN_UP = 1_000  # remembered in one period: older ones cannot hand in any more, and stay charged

Find = Callable[[BudgetId], tuple[BudgetPeriods, BudgetCoordinator] | None]
Dispatch = Callable[[BudgetId, Iterable[SiteId], Outbox], None]


class LostHolders:
    def __init__(
        self,
        find: Find,
        dispatch: Dispatch,
        clock: Callable[[], float],
        joined: Amounts,
    ) -> None:
        self._find = find
        self._dispatch = dispatch
        self._clock = clock
        self._joined = joined
        # By incarnation: the periods in which it was given up, and the peer that each belongs to.
        self._given_up: dict[SiteId, dict[BudgetId, str]] = {}

    def remember(self, site_id: SiteId, budget: BudgetId, peer: str = UNLIMITED) -> None:
        """It was given up."""
        self.forget(site_id, budget)
        self._given_up.setdefault(site_id, {})[budget] = peer
        self._joined.add(peer, 1)

    def forget(self, site_id: SiteId, budget: BudgetId) -> None:
        periods = self._given_up.get(site_id, {})
        peer = periods.pop(budget, None)
        if peer is not None:
            self._joined.add(peer, -1)
        if peer is not None and not periods:
            del self._given_up[site_id]

    def retired(self, site_id: SiteId) -> bool:
        """Whether this incarnation was given up in a period that is open: it must not ask again."""
        return site_id in self._given_up

    def mark_unreachable(self, session: Session) -> None:
        for _, coordinator in self.of(session):
            self._dispatch(coordinator.budget, (session.site_id,), coordinator.mark_unreachable(session.site_id))

    def retire(self, session: Session) -> None:
        for budget_id in sorted(session.budgets):
            self.lose(session, budget_id)

    def lose(self, session: Session, budget_id: BudgetId) -> None:
        """Nothing is handed in of what the session has of a budget."""
        found = self._find(budget_id)
        if found is not None:
            budget, coordinator = found
            if budget.rule.on_loss == FREE or budget.rolling is not None:
                units = _charged(budget, coordinator, session.site_id)
                if budget.rolling is not None:
                    budget.rolling.add_lost(units, session.last_seen)
                self._leave(coordinator, session.site_id, units)
            else:
                self._give_up(coordinator, session)
        session.release(budget_id)

    def _give_up(self, coordinator: BudgetCoordinator, session: Session) -> None:
        site_id = session.site_id
        outbox = coordinator.give_up(site_id)
        self.remember(site_id, coordinator.budget, session.peer)
        forgotten = coordinator.given_up_beyond(MAX_GIVEN_UP)
        for each in forgotten:
            coordinator.forget(each)
            self.forget(each, coordinator.budget)
        self._dispatch(coordinator.budget, (site_id, *forgotten), outbox)

    def _leave(self, coordinator: BudgetCoordinator, site_id: SiteId, units: int) -> None:
        outbox = coordinator.leave(site_id, units)
        coordinator.forget(site_id)
        self._dispatch(coordinator.budget, (site_id,), outbox)

    def free(self, session: Session) -> list[BudgetId]:
        """The rolling budgets of an unreachable session of which nothing that it took counts any more."""
        freed, session.free_at = [], inf
        for budget, coordinator in self.of(session):
            if budget.rolling is None:
                continue
            free_at = budget.rolling.free_at(session.last_seen)
            if free_at <= self._clock():
                self._leave(coordinator, session.site_id, 0)
                freed.append(coordinator.budget)
            else:
                session.free_at = min(session.free_at, free_at)
        return freed

    def of(self, session: Session) -> Iterator[tuple[BudgetPeriods, BudgetCoordinator]]:
        for budget_id in sorted(session.budgets):
            found = self._find(budget_id)
            if found is not None:
                yield found


def _charged(budget: BudgetPeriods, coordinator: BudgetCoordinator, site_id: SiteId) -> int:
    known = coordinator.saved_site(site_id)
    if budget.rule.on_loss != FREE and known is not None:
        return known.limit
    spent, held = coordinator.reported(site_id)
    return spent if budget.rule.kind == IN_FLIGHT else spent + held
