"""The rule of a budget as `SetBudgetRule` carries it.

The window of a rolling budget is in the field `per`, as in `rolling 60.0s`. A client that knows no such period spends
nothing, and tells its program that it cannot follow the rule.
"""

from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import MAX_ROLLING, MIN_ROLLING, BudgetRule
from countless.core.parameters import require_duration
from countless.wire.frames import SetBudgetRule

_ROLLING = "rolling "


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
