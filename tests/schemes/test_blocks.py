"""`blocks`: one step for each block that has reported; never off by a whole step a site, and right on average."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.estimator import OVER
from countless.core.ledger import Entry
from countless.core.messages import Address
from countless.core.site import Site
from countless.core.triggers import Blocks, Sampled
from countless.randomness import SeededDice
from countless.schemes.crossing_estimator import Crossings


def opened(step: int, *bases: int, reports: int = 10**9) -> tuple[Crossings, list[Entry]]:
    publisher = Crossings(Blocks(step), reports)
    sites = [Entry(Address(slot), base, slot) for slot, base in enumerate(bases)]
    publisher.open(sites, departed=5)
    return publisher, sites


@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize("events", [0, 1, 3, 8, 10])
def test_the_mean_over_all_positions_is_the_truth(step: int, events: int) -> None:
    """Whole blocks have reported once each; the current one has if its position is among the events seen."""
    whole, rest = divmod(events, step)
    mean = Fraction(0)
    for position in range(1, step + 1):
        publisher, [site] = opened(step, 40)
        crossings = whole + (position <= rest)
        site.known = 40 + events
        if crossings:
            publisher.hear(site, 40, crossings)
        mean += Fraction(publisher.estimate) / step
    assert mean == 5 + 40 + events


streams = st.lists(st.lists(st.integers(1, 80), max_size=20), min_size=1, max_size=4)


@given(st.integers(1, 30), streams, st.integers(0, 99))
def test_it_is_never_off_by_a_step_a_site(step: int, streams: list[list[int]], seed: int) -> None:
    publisher, entries = opened(step, *[10 * slot for slot in range(len(streams))])
    sites = [
        Site("hits", entry.address, SeededDice(seed).split(entry.slot), pace=Blocks(step), count=entry.base)
        for entry in entries
    ]
    total = 5 + sum(entry.base for entry in entries)
    for entry, site, stream in zip(entries, sites, streams, strict=True):
        for n in stream:
            total += n
            for report in site.add(n):
                before, entry.known = entry.known, report.count
                publisher.hear(entry, before, site.crossings - entry.crossings)
                entry.crossings = site.crossings
            assert abs(publisher.estimate - total) <= len(streams) * max(0, step - 1)


def test_a_round_ends_after_its_reports() -> None:
    publisher, [site] = opened(10, 0, reports=3)
    assert publisher.hear(site, 0, 2) is None
    assert publisher.hear(site, 0, 1) is OVER


def test_newcomers_and_latecomers_bring_what_is_known_exactly() -> None:
    publisher, sites = opened(10, 7)
    publisher.join(Entry(Address("new"), 33, 1))
    assert publisher.estimate == 5 + 7 + 33
    publisher.late(sites[0], 7, 4)
    assert publisher.estimate == 5 + 7 + 33 + 4


def test_a_shift_is_in_steps() -> None:
    publisher = Crossings(Sampled(10), 100, shift=3)
    publisher.open([], departed=200)
    assert publisher.estimate == 230
