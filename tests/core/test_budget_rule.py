"""The rule of a budget: every value is checked, and the error names the field."""

from typing import Any

import pytest

from countless.core.budget.rule import BudgetRule
from countless.errors import InvalidParameter


def test_rule_has_the_defaults_of_a_budget_without_periods() -> None:
    rule = BudgetRule(100)
    assert rule == BudgetRule(100, None, "UTC", None, 0.01, "spending", "charge", "refuse")
    assert rule.calendar is None


def test_calendar_of_a_rule_begins_at_its_anchor() -> None:
    calendar = BudgetRule(100, per="day", tz="Asia/Tokyo", anchor=4).calendar
    assert calendar is not None
    assert calendar.local_time(calendar.bounds(20_000)[0]) == "2024-10-04T04:00:00+09:00"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("limit", [0, -1, 1.5, True, 2**62 + 1, "5"]),
        ("per", ["week", "", 1, []]),
        ("tz", ["Nowhere", "", None, 5]),
        ("anchor", [24, -1, "4", 1.5]),
        ("slack", [-0.1, 1, "0.1", True, float("nan")]),
        ("kind", ["other", None, 1]),
        ("on_loss", ["other", None]),
        ("on_unreachable", ["other", None]),
    ],
)
def test_invalid_value_is_refused_by_the_name_of_its_field(field: str, values: list[Any]) -> None:
    valid: dict[str, Any] = {"limit": 100, "per": "day"}
    for value in values:
        with pytest.raises(InvalidParameter) as raised:
            BudgetRule(**valid | {field: value})
        assert raised.value.parameter == field


def test_limit_on_what_runs_has_no_periods() -> None:
    assert BudgetRule(5, kind="in_flight").calendar is None
    with pytest.raises(InvalidParameter, match="per can't be used with kind in_flight"):
        BudgetRule(5, kind="in_flight", per="day")


@pytest.mark.parametrize(("field", "value"), [("tz", "Europe/Berlin"), ("anchor", 1)])
def test_calendar_without_periods_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidParameter, match="can't be used for a budget without periods") as raised:
        BudgetRule(100, **{field: value})  # type: ignore[arg-type]
    assert raised.value.parameter == field
