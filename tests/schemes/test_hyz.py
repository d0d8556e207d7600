"""`hyz`: the estimate is unbiased, exactly, by enumeration of all coins."""

from fractions import Fraction
from itertools import product

import pytest

from countless.core.estimator import OVER
from countless.core.ledger import Entry
from countless.core.messages import Address
from countless.schemes.hyz import LastReports


def estimate(step: int, base: int, coins: tuple[bool, ...], *, batched: bool) -> float:
    """After these coins, told one report at a time or in one batch."""
    site = Entry(Address(0), base, 0)
    publisher = LastReports(step, 10**9)
    publisher.open([site], departed=100)
    heads = [base + number for number, head in enumerate(coins, start=1) if head]
    for points in [heads] if batched else [[head] for head in heads]:
        if points:
            before, site.known = site.known, points[-1]
            site.crossings += len(points)
            publisher.hear(site, before, len(points))
    return publisher.estimate


@pytest.mark.parametrize("step", [1, 2, 3, 7])
@pytest.mark.parametrize("events", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("batched", [False, True])
def test_the_mean_over_all_coins_is_the_truth(step: int, events: int, batched: bool) -> None:
    heads = Fraction(1, step)
    mean = Fraction(0)
    for coins in product((False, True), repeat=events):
        chance = heads ** sum(coins) * (1 - heads) ** (events - sum(coins))
        if chance:
            mean += chance * Fraction(estimate(step, 50, coins, batched=batched))
    assert mean == 100 + 50 + events


def test_a_site_counts_as_its_base_until_it_reports() -> None:
    assert estimate(10, 50, (False,) * 8, batched=False) == 150
    assert estimate(10, 50, (False, False, True, False), batched=False) == 100 + 53 - 1 + 10


def test_a_round_ends_after_its_reports() -> None:
    site = Entry(Address(0), 0, 0)
    publisher = LastReports(5, 3)
    publisher.open([site], departed=0)
    site.known, site.crossings = 8, 2
    assert publisher.hear(site, 0, 2) is None
    site.known, site.crossings = 11, 3
    assert publisher.hear(site, 8, 1) is OVER


def test_a_late_base_matters_only_before_the_first_report() -> None:
    site = Entry(Address(0), 10, 0)
    publisher = LastReports(5, 100)
    publisher.open([site], departed=0)
    site.base = site.known = 14
    publisher.late(site, 10, 4)
    assert publisher.estimate == 14
    site.known, site.crossings = 20, 1
    publisher.hear(site, 14, 1)
    assert publisher.estimate == 20 - 1 + 5
    site.base = 16
    publisher.late(site, 20, 2)
    assert publisher.estimate == 20 - 1 + 5
