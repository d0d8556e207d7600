"""`blocks`: one step for each block that has reported; the error is below one step per site, and zero on average."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.estimator import Effect
from countless.core.ledger import Entry
from countless.core.messages import SiteId
from countless.core.site import Site
from countless.core.triggers import BernoulliSampling, OncePerBlock
from countless.randomness import SeededRandom
from countless.schemes.sampled import CrossingEstimator


def opened(step: int, *bases: int, reports: int = 10**9) -> tuple[CrossingEstimator, list[Entry]]:
    estimator = CrossingEstimator(OncePerBlock(step), reports)
    sites = [Entry(SiteId(slot), base, slot) for slot, base in enumerate(bases)]
    estimator.start(sites, departed=5)
    return estimator, sites


@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize("events", [0, 1, 3, 8, 10])
def test_blocks_mean_over_all_positions_is_the_total(step: int, events: int) -> None:
    """Whole blocks have reported once each; the current one has if its position is among the events seen."""
    whole, rest = divmod(events, step)
    mean = Fraction(0)
    for position in range(1, step + 1):
        estimator, [site] = opened(step, 40)
        crossings = whole + (position <= rest)
        site.reported = 40 + events
        if crossings:
            estimator.on_report(site, 40, crossings)
        mean += Fraction(estimator.estimate) / step
    assert mean == 5 + 40 + events


streams = st.lists(st.lists(st.integers(1, 80), max_size=20), min_size=1, max_size=4)


@pytest.mark.slow
@given(st.integers(1, 30), streams, st.integers(0, 99))
def test_blocks_error_is_below_one_step_per_site(step: int, streams: list[list[int]], seed: int) -> None:
    estimator, entries = opened(step, *[10 * slot for slot in range(len(streams))])
    sites = [
        Site(
            "hits",
            entry.site_id,
            SeededRandom(seed).spawn(entry.slot),
            trigger=OncePerBlock(step),
            count=entry.round_start,
        )
        for entry in entries
    ]
    total = 5 + sum(entry.round_start for entry in entries)
    for entry, site, stream in zip(entries, sites, streams, strict=True):
        for n in stream:
            total += n
            for report in site.add(n):
                before, entry.reported = entry.reported, report.count
                estimator.on_report(entry, before, site.crossings - entry.crossings)
                entry.crossings = site.crossings
            assert abs(estimator.estimate - total) <= len(streams) * max(0, step - 1)


def test_blocks_round_ends_after_its_reports() -> None:
    estimator, [site] = opened(10, 0, reports=3)
    assert estimator.on_report(site, 0, 2) is None
    assert estimator.on_report(site, 0, 1) is Effect.END_ROUND


def test_blocks_joins_and_late_starts_add_their_exact_counts() -> None:
    estimator, sites = opened(10, 7)
    estimator.join(Entry(SiteId("new"), 33, 1))
    assert estimator.estimate == 5 + 7 + 33
    estimator.on_late_start(sites[0], 7, 4)
    assert estimator.estimate == 5 + 7 + 33 + 4


def test_shift_of_the_crossing_estimator_is_in_steps() -> None:
    estimator = CrossingEstimator(BernoulliSampling(10), 100, shift=3)
    estimator.start([], departed=200)
    assert estimator.estimate == 230
