"""The table of ready-made plans: every plan from it is verified, and about as cheap as one that was searched for."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from countless.planning.cache import round_up_sites
from countless.planning.dithered import ready_made
from countless.planning.dithered.check import check_dithered
from countless.planning.dithered.planner import plan_dithered
from countless.planning.dithered.ready_made import MIN_SITES, TABLE, quick_plan_dithered, quote_dithered

ROWS = [tuple(row[:3]) for row in json.loads(TABLE.read_text(encoding="utf-8"))]
REQUESTS = sorted({(alpha, eta) for alpha, eta, _ in ROWS})


def sizes(alpha: float, eta: float, most: int) -> list[int]:
    """The numbers of sites that plans are made for, within the table."""
    known = [sites for a, e, sites in ROWS if (a, e) == (alpha, eta)]
    found, sites = [], round_up_sites(MIN_SITES)
    while sites <= min(most, max(known)):
        found.append(sites)
        sites = round_up_sites(sites + 1)
    return found


@pytest.mark.parametrize(("alpha", "eta"), [(alpha, eta) for alpha, eta in REQUESTS if alpha >= 0.05])
@pytest.mark.parametrize("sites", [36, 112])
def test_plans_of_the_table_pass_the_check(sites: int, alpha: float, eta: float) -> None:
    plan = ready_made.ready_made(sites, alpha, eta)
    assert plan is not None
    assert (plan.sites, plan.alpha, plan.eta) == (sites, alpha, eta)
    assert sum(Fraction(phase.risk) for phase in plan.phases) <= Fraction(eta)
    check_dithered(plan)


@pytest.mark.soak
@pytest.mark.parametrize(("alpha", "eta"), REQUESTS)
def test_every_plan_of_the_table_passes_the_check(alpha: float, eta: float) -> None:
    for sites in sizes(alpha, eta, 10**6):
        assert ready_made.ready_made(sites, alpha, eta) is not None, sites


@pytest.mark.parametrize(
    ("sites", "alpha", "eta", "most"),
    [
        (72, 0.05, 2.0**-8, 1.03),
        (60, 0.1, 2.0**-8, 1.04),
        (128, 0.08, 2.0**-8, 1.05),  # of alpha 7 %
        (80, 0.05, 2.0**-20, 1.06),  # of 2^-24
        pytest.param(208, 0.01, 2.0**-12, 1.03, marks=pytest.mark.soak),
        pytest.param(700, 0.006, 2.0**-12, 1.06, marks=pytest.mark.soak),
        pytest.param(5_000, 0.018, 2.0**-16, 1.08, marks=pytest.mark.soak),
    ],
)
def test_ready_made_plan_costs_little_more_than_one_that_is_searched_for(
    sites: int, alpha: float, eta: float, most: float
) -> None:
    plan, searched = ready_made.ready_made(sites, alpha, eta), plan_dithered(sites, alpha, eta)
    assert plan is not None
    check_dithered(plan)
    assert plan.messages_per_efold <= most * searched.messages_per_efold


@pytest.mark.parametrize(("sites", "alpha", "eta"), [(100, 0.05, 2.0**-8), (60, 0.123, 1e-4), (300, 0.03, 2.0**-20)])
def test_quote_is_the_price_of_the_plan(sites: int, alpha: float, eta: float) -> None:
    quote, plan = quote_dithered(sites, alpha, eta), ready_made.ready_made(sites, alpha, eta)
    assert quote is not None
    assert plan is not None
    assert quote.messages_per_efold == pytest.approx(plan.messages_per_efold, rel=1e-6)
    assert quote.messages_per_round == pytest.approx(plan.messages_per_round, rel=1e-6)
    assert quote.step(10**9) == pytest.approx(plan.step(10**9), rel=1e-6)


@pytest.mark.parametrize(("sites", "alpha", "eta"), [(5, 0.01, 2.0**-8), (40, 0.004, 0.1), (40, 0.2, 1e-20)])
def test_request_outside_the_table_is_searched_for(sites: int, alpha: float, eta: float) -> None:
    assert ready_made.ready_made(sites, alpha, eta) is None
    assert quote_dithered(sites, alpha, eta) is None
    assert quick_plan_dithered(sites, alpha, eta) is plan_dithered(sites, alpha, eta)


def test_more_sites_than_the_table_has_are_searched_for() -> None:
    assert quote_dithered(10**6, 0.1, 1e-3) is None


def test_plan_that_the_check_refuses_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_of = ready_made.plan_of
    monkeypatch.setattr(ready_made, "plan_of", lambda *request: replace(plan_of(*request), allowance=1.0))
    assert ready_made.ready_made.__wrapped__(100, 0.05, 2.0**-8) is None
