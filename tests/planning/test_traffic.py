"""Prices of uneven traffic, against what sites send."""

import pytest

from countless.planning.deterministic import plan_deterministic
from countless.planning.dithered.ready_made import quick_plan_dithered
from countless.planning.oblivious import plan_lattice
from countless.planning.traffic import (
    Group,
    active_sites,
    deterministic_messages,
    flush_messages,
    groups_of,
    messages_per_efold,
    messages_until,
    round_messages,
    zipf,
)
from countless_lab.simulation.registry import stream_named
from countless_lab.simulation.run import fast_run


def test_shares_sum_to_one_and_equal_sites_are_one_group() -> None:
    for groups in (zipf(1000, 1.2), groups_of([3, 1, 1, 0, 3])):
        assert sum(group.sites * group.share for group in groups) == pytest.approx(1)
    assert groups_of([3, 1, 1, 0, 3]) == [Group(2, 3 / 8), Group(2, 1 / 8), Group(1, 0.0)]
    assert zipf(50, 0) == [Group(50, 1 / 50)]


def test_active_sites_are_at_most_the_events() -> None:
    assert active_sites(zipf(100, 1.0), 1) == pytest.approx(1)
    assert active_sites(zipf(100, 1.0), 1e9) == 100


def test_balanced_traffic_has_the_price_of_the_plan() -> None:
    groups = zipf(500, 0)
    for plan in (plan_deterministic(500, 0.02), plan_lattice(500, 0.02, 1e-4), quick_plan_dithered(512, 0.02, 2**-12)):
        assert messages_per_efold(plan, [Group(plan.sites, 1 / plan.sites)]) == pytest.approx(plan.messages_per_efold)
    lattice = plan_lattice(500, 0.02, 1e-4)
    assert round_messages(lattice, groups, 500) == lattice.messages_per_round
    assert round_messages(lattice, groups, 100) == lattice.messages_per_round - 800


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_skew_makes_deterministic_and_dithered_cheaper_in_the_long_run(exponent: float) -> None:
    for plan in (plan_deterministic(512, 0.02), quick_plan_dithered(512, 0.02, 2**-12)):
        assert messages_per_efold(plan, zipf(512, exponent)) < 0.97 * plan.messages_per_efold
    lattice = plan_lattice(512, 0.02, 1e-4)
    assert messages_per_efold(lattice, zipf(512, exponent)) == lattice.messages_per_efold


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["deterministic", "dithered"])
@pytest.mark.parametrize(("stream", "exponent"), [("uniform", 0.0), ("zipf", 1.0)])
def test_price_is_what_the_sites_send(scheme: str, stream: str, exponent: float) -> None:
    """200 sites, 300,000 events at 5 %. Tolerances and steps follow the shares late, which costs up to a fifth."""
    sites, events, alpha = 200, 300_000, 0.05
    run = fast_run(scheme, stream_named(stream, sites, events, seed=1), events, alpha=alpha, delta=0.05, seed=1)
    plan = plan_deterministic(sites, alpha) if scheme == "deterministic" else quick_plan_dithered(208, alpha, 2**-8)
    price = messages_until(plan, zipf(sites, exponent), events)
    assert 0.8 * run.messages.total <= price <= 1.1 * run.messages.total


def test_deterministic_sites_report_every_event_at_first() -> None:
    groups = zipf(100, 1.0)
    assert deterministic_messages(groups, 0.01, 50) == pytest.approx(50)
    assert deterministic_messages(groups, 0.01, 10**6) < 50_000
    halves = [Group(sites, share, 500 * share) for sites, share, _ in groups]
    together = deterministic_messages(groups, 0.01, 500) + deterministic_messages(halves, 0.01, 500)
    assert deterministic_messages(groups, 0.01, 1000) == pytest.approx(together)


def test_flushes_are_at_most_one_for_each_site_and_period() -> None:
    groups = zipf(100, 1.0)
    assert flush_messages(groups, 10**6, 1_000, 60) == pytest.approx(100 * 10**6 / 1_000 / 60, rel=1e-6)
    assert flush_messages(groups, 10**6, 1, 1) <= 10**6
