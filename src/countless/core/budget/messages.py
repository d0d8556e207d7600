"""The four messages of a budget.

Amounts are cumulative, so a message may be lost, repeated or overtaken without harm to the limit. A grant names its
round, and a site takes no grant of a round before its own. The sender, a `SiteId`, is known from the connection.
"""

from typing import NamedTuple

from countless.core.messages import SiteId


class BudgetId(NamedTuple):
    """A budget in one period. A budget without periods stays in period 0."""

    name: str
    period: int = 0


class Ask(NamedTuple):
    """Up: the state of the site. `want` is the largest request that waits, or 0. The highest `seq` is the newest."""

    budget: BudgetId
    round: int
    seq: int
    spent: int
    held: int
    limit: int
    want: int


class Grant(NamedTuple):
    """Down: spend and hold at most `limit`, in all."""

    budget: BudgetId
    round: int
    limit: int


class Recall(NamedTuple):
    """Down: return what is neither spent nor held, and reply with an `Ask`."""

    budget: BudgetId
    round: int


class Exhausted(NamedTuple):
    """Down: refuse requests of `weight` or more for which you have no room, and report units that holds return."""

    budget: BudgetId
    round: int
    weight: int


DownMessage = Grant | Recall | Exhausted
Outbox = list[tuple[SiteId, DownMessage]]
