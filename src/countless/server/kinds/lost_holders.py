"""The units of sites that are lost: retired without having handed them in, or unreachable for long.

| budget                | when the session is retired                       | while it is only unreachable             |
|-----------------------|---------------------------------------------------|------------------------------------------|
| `on_loss` is `charge` | the site is given up: its limit counts as spent,  | its limit counts as used                 |
|                       | unless it hands in what it spent                  |                                          |
| `on_loss` is `free`   | only what it has reported counts                  | the same                                 |
| rolling               | as above, until a lease and a window have passed  | the same; then it is forgotten           |
"""

from collections.abc import Callable

from countless.core.budget.messages import Outbox
from countless.core.budget.rule import FREE, IN_FLIGHT
from countless.core.messages import SiteId
from countless.server.kinds.budget_periods import BudgetPeriod
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import UNLIMITED, Amounts
from countless.wire.keys import Key

MAX_GIVEN_UP = 1_000  # remembered in one period: older ones cannot hand in any more, and stay charged


class LostHolders:
    """The sites that were given up, of all budgets."""

    def __init__(self, clock: Callable[[], float], joined: Amounts) -> None:
        self._clock = clock
        self._joined = joined
        # By incarnation: the periods in which it was given up, and the peer that each belongs to.
        self._given_up: dict[SiteId, dict[Key, str]] = {}

    def remember(self, site_id: SiteId, period: Key, peer: str = UNLIMITED) -> None:
        """It was given up."""
        self.forget(site_id, period)
        self._given_up.setdefault(site_id, {})[period] = peer
        self._joined.add(peer, 1)

    def forget(self, site_id: SiteId, period: Key) -> None:
        periods = self._given_up.get(site_id, {})
        peer = periods.pop(period, None)
        if peer is not None:
            self._joined.add(peer, -1)
        if peer is not None and not periods:
            del self._given_up[site_id]

    def retired(self, site_id: SiteId) -> bool:
        """True if this incarnation was given up in a period that is open: it must not ask again."""
        return site_id in self._given_up

    def lose(self, session: Session, period: BudgetPeriod) -> Outbox:
        """Nothing is handed in of what the session has."""
        rule, rolling = period.budget.rule, period.budget.rolling
        if rule.on_loss != FREE and rolling is None:
            return self._give_up(period, session)
        outbox = self.leave(period, session.site_id, _charged(period, session.site_id))
        if rolling is not None:
            rolling.add_lost(period.coordinator.take_panes(), session.last_seen)
        return outbox

    def _give_up(self, period: BudgetPeriod, session: Session) -> Outbox:
        coordinator = period.coordinator
        outbox = coordinator.give_up(session.site_id)
        self.remember(session.site_id, period.key, session.peer)
        for each in coordinator.given_up_beyond(MAX_GIVEN_UP):
            coordinator.forget(each)
            self.forget(each, period.key)
            period.mark_left(each)
        return outbox

    def leave(self, period: BudgetPeriod, site_id: SiteId, units: int) -> Outbox:
        outbox = period.coordinator.leave(site_id, units)
        period.coordinator.forget(site_id)
        period.mark_left(site_id)
        return outbox


def _charged(period: BudgetPeriod, site_id: SiteId) -> int:
    """Only rolling budgets charge units that were not reported; those that were handed over come back anyway."""
    known, rule = period.coordinator.saved_site(site_id), period.budget.rule
    if rule.on_loss != FREE and known is not None:
        return known.spent + known.limit
    spent, held = period.coordinator.reported(site_id)
    return spent if rule.kind == IN_FLIGHT else spent + held
