"""`hyz`: the estimate is unbiased, exactly, by enumeration of all coins."""

from fractions import Fraction
from itertools import product

import pytest

from countless.core.estimator import Effect
from countless.core.ledger import Entry
from countless.core.messages import SiteId
from countless_lab.schemes.hyz import LastReportEstimator


def estimate(step: int, base: int, coins: tuple[bool, ...], *, batched: bool) -> float:
    """After these coins, told one report at a time or in one batch."""
    site = Entry(SiteId(0), base, 0)
    estimator = LastReportEstimator(step, 10**9)
    estimator.start([site], departed=100)
    heads = [base + number for number, head in enumerate(coins, start=1) if head]
    for points in [heads] if batched else [[head] for head in heads]:
        if points:
            before, site.reported = site.reported, points[-1]
            site.crossings += len(points)
            estimator.on_report(site, before, len(points))
    return estimator.estimate


@pytest.mark.parametrize("step", [1, 2, 3, 7])
@pytest.mark.parametrize("events", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("batched", [False, True])
def test_hyz_mean_over_all_coins_is_the_total(step: int, events: int, batched: bool) -> None:
    heads = Fraction(1, step)
    mean = Fraction(0)
    for coins in product((False, True), repeat=events):
        chance = heads ** sum(coins) * (1 - heads) ** (events - sum(coins))
        if chance:
            mean += chance * Fraction(estimate(step, 50, coins, batched=batched))
    assert mean == 100 + 50 + events


def test_hyz_estimates_the_round_start_until_the_first_report() -> None:
    assert estimate(10, 50, (False,) * 8, batched=False) == 150
    assert estimate(10, 50, (False, False, True, False), batched=False) == 100 + 53 - 1 + 10


def test_hyz_round_ends_after_its_reports() -> None:
    site = Entry(SiteId(0), 0, 0)
    estimator = LastReportEstimator(5, 3)
    estimator.start([site], departed=0)
    site.reported, site.crossings = 8, 2
    assert estimator.on_report(site, 0, 2) is None
    site.reported, site.crossings = 11, 3
    assert estimator.on_report(site, 8, 1) is Effect.END_ROUND


def test_hyz_late_start_matters_only_before_the_first_report() -> None:
    site = Entry(SiteId(0), 10, 0)
    estimator = LastReportEstimator(5, 100)
    estimator.start([site], departed=0)
    site.round_start = site.reported = 14
    estimator.on_late_start(site, 10, 4)
    assert estimator.estimate == 14
    site.reported, site.crossings = 20, 1
    estimator.on_report(site, 14, 1)
    assert estimator.estimate == 20 - 1 + 5
    site.round_start = 16
    estimator.on_late_start(site, 20, 2)
    assert estimator.estimate == 20 - 1 + 5
