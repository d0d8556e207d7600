"""The items of budgets, which frames carry; `Ask` and `Quota` are the messages of the core.

The window of a rolling budget is in the field `per` of its rule, as in `rolling 60.0s`. A client that knows no such
period spends nothing, and tells its program that it cannot follow the rule.
"""

from typing import Any, NamedTuple

from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.budget.rolling import PANES
from countless.core.budget.rule import MAX_ROLLING, MIN_ROLLING, BudgetRule
from countless.core.parameters import require_duration

MAX_PANES = PANES + 2  # a site has no more at a time
_ROLLING = "rolling "


class BudgetLeave(NamedTuple):
    """Up: this incarnation of the site spends nothing more of a budget; what it has spent and held, in all, and has
    handed over.
    """

    budget: BudgetId
    incarnation: int
    spent: int


class BudgetLeaveAck(NamedTuple):
    """Down: the units that this incarnation handed in are on the disk."""

    budget: BudgetId
    incarnation: int


class BudgetRejected(NamedTuple):
    """Down: the site can have nothing of this budget. Forget what was granted before."""

    budget: BudgetId
    reason: str


class SetBudgetRule(NamedTuple):
    """Down: the rule of a budget. It is sent before anything else of the budget, and again when it has changed."""

    budget: BudgetId
    limit: int
    per: str | None
    tz: str
    anchor: int | None
    slack: float
    kind: str
    on_loss: str
    on_unreachable: str


BudgetUpItem = Ask | BudgetLeave
BudgetDownItem = Quota | BudgetLeaveAck | BudgetRejected | SetBudgetRule
UP_ITEMS = (Ask, BudgetLeave)
ITEMS: tuple[type[Any], ...] = (Ask, Quota, BudgetLeave, BudgetLeaveAck, BudgetRejected, SetBudgetRule)  # by kind


def rule_item(name: str, rule: BudgetRule) -> SetBudgetRule:
    per = rule.per if rule.rolling is None else f"{_ROLLING}{rule.rolling}s"
    return SetBudgetRule(
        budget=BudgetId(name),
        limit=rule.limit,
        per=per,
        tz=rule.tz,
        anchor=rule.anchor,
        slack=rule.slack,
        kind=rule.kind,
        on_loss=rule.on_loss,
        on_unreachable=rule.on_unreachable,
    )


def rule_of(item: SetBudgetRule) -> BudgetRule:
    """Raises InvalidParameter if this version cannot follow it.

    >>> rule_of(rule_item("logins", BudgetRule(5, rolling=60))).rolling
    60.0
    """
    if item.per is None or not item.per.startswith(_ROLLING):
        return BudgetRule(*item[1:])
    window = require_duration("per", item.per.removeprefix(_ROLLING), MIN_ROLLING, MAX_ROLLING)
    return BudgetRule(*item._replace(per=None)[1:], rolling=window)
