"""The searches behind the calibrations."""

from math import exp

import pytest

from countless.planning.search import golden_section_min, nelder_mead, round_up, safe_root


def test_nelder_mead_finds_a_minimum() -> None:
    found = nelder_mead(lambda point: (point[0] - 3) ** 2 + 10 * (point[1] + 1) ** 2, [0.0, 0.0], [0.5, 0.5], 100)
    assert found == pytest.approx([3, -1], abs=1e-3)


@pytest.mark.parametrize("precision", [1e-2, 1e-6])
def test_golden_section_reaches_its_precision(precision: float) -> None:
    assert golden_section_min(lambda x: x + 9 / x, 0.1, 100, precision) == pytest.approx(3, rel=precision)


def test_safe_root_is_safe_and_within_its_precision() -> None:
    found = safe_root(lambda x: exp(-x * x), 1e-4, 10.0, 1e-3)
    assert exp(-found * found) <= 1e-4 < exp(-((found - 1e-3) ** 2))


def test_round_up_keeps_sixteen_bits() -> None:
    assert round_up(1.0) == 1.0
    assert round_up(1.0 + 1e-12) == 1.0 + 2.0**-15
