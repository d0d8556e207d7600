"""The table of ready-made plans: every plan from it is verified, and about as cheap as one that was searched for."""

import json
from fractions import Fraction

import pytest

from countless.planning import ready_made
from countless.planning.cache import round_up_sites
from countless.planning.dithered import plan_dithered
from countless.planning.dithered_check import check_dithered
from countless.planning.ready_made import TABLE, quick_plan_dithered

ROWS = [tuple(row[:3]) for row in json.loads(TABLE.read_text(encoding="utf-8"))]
REQUESTS = sorted({(alpha, eta) for alpha, eta, _ in ROWS})


def sizes(alpha: float, eta: float, most: int) -> list[int]:
    """The numbers of sites that plans are made for, within the table."""
    known = [sites for a, e, sites in ROWS if (a, e) == (alpha, eta)]
    found, sites = [], min(known)
    while sites <= min(most, max(known)):
        found.append(sites)
        sites = round_up_sites(sites + 1)
    return found


@pytest.mark.parametrize(("alpha", "eta"), REQUESTS)
def test_every_plan_of_the_table_up_to_100_sites_passes_the_check(alpha: float, eta: float) -> None:
    for sites in sizes(alpha, eta, 100):
        plan = ready_made.ready_made(sites, alpha, eta)
        assert plan is not None, sites
        assert (plan.sites, plan.alpha, plan.eta) == (sites, alpha, eta)
        assert sum(Fraction(phase.risk) for phase in plan.phases) <= Fraction(eta)
        check_dithered(plan)


@pytest.mark.soak
@pytest.mark.parametrize(("alpha", "eta"), REQUESTS)
def test_every_plan_of_the_table_passes_the_check(alpha: float, eta: float) -> None:
    """But for some, where neighbours in the table are too different, and a search is due."""
    found = [ready_made.ready_made(sites, alpha, eta) for sites in sizes(alpha, eta, 10**6)]
    assert sum(plan is None for plan in found) <= (0.12 if alpha < 0.1 else 0.2) * len(found)


@pytest.mark.slow
@pytest.mark.parametrize(("sites", "alpha", "eta"), [(72, 0.05, 2.0**-8), (208, 0.01, 2.0**-12), (400, 0.03, 2.0**-16)])
def test_ready_made_plan_costs_little_more_than_one_that_is_searched_for(sites: int, alpha: float, eta: float) -> None:
    ready, searched = quick_plan_dithered(sites, alpha, eta), plan_dithered(sites, alpha, eta)
    assert ready.messages_per_efold <= 1.03 * searched.messages_per_efold


@pytest.mark.parametrize(("sites", "alpha", "eta"), [(80, 0.05, 2.0**-20), (144, 0.02, 2.0**-28), (90, 0.1, 1e-3)])
def test_smaller_failure_probabilities_than_those_of_the_table_are_reached_by_repairs(
    sites: int, alpha: float, eta: float
) -> None:
    plan = ready_made.ready_made(sites, alpha, eta)
    assert plan is not None
    assert plan.eta == eta
    check_dithered(plan)


@pytest.mark.slow
@pytest.mark.parametrize(("sites", "alpha", "eta"), [(128, 0.015, 2.0**-8), (208, 0.04, 2.0**-12), (100, 0.07, 1e-5)])
def test_quote_for_another_alpha_is_near_the_price_of_a_plan(sites: int, alpha: float, eta: float) -> None:
    quote = ready_made.quote_dithered(sites, alpha, eta)
    assert quote is not None
    assert quote.messages_per_efold == pytest.approx(plan_dithered(sites, alpha, eta).messages_per_efold, rel=0.15)


@pytest.mark.parametrize(("sites", "alpha", "eta"), [(5, 0.01, 2.0**-8), (100, 0.0123, 2.0**-8), (100, 0.2, 1e-4)])
def test_request_outside_the_table_is_searched_for(sites: int, alpha: float, eta: float) -> None:
    assert ready_made.ready_made(sites, alpha, eta) is None
    assert quick_plan_dithered(sites, alpha, eta) is plan_dithered(sites, alpha, eta)


def test_plan_that_cannot_be_repaired_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_made, "MAX_REPAIRS", 0)
    assert ready_made.ready_made.__wrapped__(128, 0.01, 2.0**-8) is None


def test_too_small_slacks_are_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ready_made._entry(128, 0.05, 2.0**-8)
    assert entry is not None
    small = [[length, dither, 0.97 * early, 0.97 * late] for length, dither, early, late in entry.numbers]
    monkeypatch.setattr(ready_made, "_entry", lambda *_: entry._replace(numbers=small))
    plan = ready_made.ready_made.__wrapped__(128, 0.05, 2.0**-8)
    assert plan is not None
    check_dithered(plan)
