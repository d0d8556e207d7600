"""Validation of integers. Alpha and probabilities are tested with the planner (tests/planning/test_plan.py)."""

import pytest

from countless.core.parameters import require_int
from countless.errors import InvalidParameter


@pytest.mark.parametrize("value", [True, 1.0, "2", None, 1, 11])
def test_require_int_refuses_other_types_and_values_outside_the_limits(value: object) -> None:
    with pytest.raises(InvalidParameter, match="an integer of at least 2 and at most 10"):
        require_int("sites", value, 2, 10)


def test_require_int_without_a_maximum() -> None:
    require_int("sites", 10**30, 2)
    with pytest.raises(InvalidParameter, match=r"an integer of at least 2$"):
        require_int("sites", 1, 2)
