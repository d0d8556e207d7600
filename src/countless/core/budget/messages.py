"""The two messages of a budget. Each carries the whole state of its sender, so the newest replaces all before it.

What a site was granted and what it has returned are totals that only grow: a message may be lost, repeated or overtaken
without harm to the limit. The sender, a `SiteId`, is known from the connection.
"""

from typing import NamedTuple

from countless.core.messages import SiteId


class BudgetId(NamedTuple):
    """A budget in one period. A budget without periods stays in period 0."""

    name: str
    period: int = 0


class Pane(NamedTuple):
    """Units of a rolling budget that a site handed over, `age` seconds or more after it took them."""

    age: float
    units: int


class Ask(NamedTuple):
    """Up: the state of the site.

    `seq` counts the Asks of the site, `number` is the last `Quota` that it has seen. `since` is the `seq` with which
    its membership began; 0 if it does not know yet. `want` is the first request that waits, `more` the sum of the
    others; with `want` 0, `more` asks early. `keep`: the site may keep room that it does not use. `queued`: the first
    request keeps waiting if it is refused, and is granted when its units are free.

    Of a rolling budget, `spent` is what was handed over in all, `panes` what is handed over now, and `held` what the
    site has taken or holds and has not handed over.
    """

    budget: BudgetId
    seq: int
    since: int
    number: int
    granted: int
    returned: int
    spent: int
    held: int
    want: int = 0
    more: int = 0
    keep: bool = False
    panes: tuple[Pane, ...] = ()
    queued: bool = False


class Quota(NamedTuple):
    """Down: what the site was granted in all, and what it may do.

    `keep`: keep room that is not used; without it, return it at once. `refuse_from`: refuse requests of so many units,
    and of more, until the next `Quota`. `reply`: send an `Ask`.
    """

    budget: BudgetId
    since: int
    number: int
    granted: int
    keep: bool = False
    refuse_from: int | None = None
    reply: bool = False


Outbox = list[tuple[SiteId, Quota]]
