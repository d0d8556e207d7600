"""Every calibration at the limits of its parameters."""

from itertools import product

import pytest

from countless.core.parameters import MIN_ALPHA, MIN_PROBABILITY
from countless.errors import InvalidParameter
from countless.planning.dithered.check import check_dithered
from countless.planning.dithered.plan import DitheredPlan
from countless.planning.plan import MAX_SITES, check_request
from countless.schemes.compare import calibrations

NEARLY_HALF, NEARLY_ONE = 0.49999999999999994, 0.9999999999999999


@pytest.mark.slow
@pytest.mark.parametrize("name", calibrations())
@pytest.mark.parametrize("sites", [1, pytest.param(12, marks=pytest.mark.soak)])
def test_extreme_requests_have_a_plan(name: str, sites: int) -> None:
    calibrate = calibrations()[name]
    for alpha, eta in product((MIN_ALPHA, NEARLY_HALF), (MIN_PROBABILITY, NEARLY_ONE)):
        plan = calibrate(sites, alpha, eta)
        assert 0 < plan.messages_per_efold < float("inf"), (sites, alpha, eta)
        assert plan.step(0) <= plan.step(10**400), (sites, alpha, eta)
        if isinstance(plan, DitheredPlan):
            check_dithered(plan)


@pytest.mark.parametrize("name", calibrations())
def test_cost_times_alpha_converges_for_small_alpha(name: str) -> None:
    """A constant over alpha; only the bound of the oblivious schemes has a logarithm of alpha in it."""
    calibrate = calibrations()[name]
    costs = [calibrate(30, alpha, 1e-3).messages_per_efold * alpha for alpha in (1e-7, 1e-14)]
    assert costs[1] == pytest.approx(costs[0], rel=0.08)


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ((0, 0.1, 0.1), "sites = 0"),
        ((MAX_SITES + 1, 0.1, 0.1), "sites = 10000001"),
        ((1, MIN_ALPHA / 2, 0.1), "alpha = 5e-301"),
        ((1, 0.5, 0.1), "alpha = 0.5"),
        ((1, 0.1, MIN_PROBABILITY / 2), "at least 9.33e-302"),
        ((1, 0.1, float("nan")), "eta = nan"),
    ],
)
def test_invalid_requests_are_refused(request_: tuple[int, float, float], named: str) -> None:
    with pytest.raises(InvalidParameter, match=named):
        check_request(*request_)
