"""`deterministic`: always within alpha, also if the stream depends on the answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless import Tracker
from countless.core.answer import State, within
from countless.core.ledger import Entry
from countless.core.messages import SiteId
from countless.core.triggers import GeometricGrowth
from countless.randomness import SeededRandom
from countless.schemes.deterministic import DeterministicEstimator


@given(
    st.floats(0.01, 0.45),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 10**12)), max_size=60),
)
def test_deterministic_answer_is_always_within_alpha(alpha: float, stream: list[tuple[int, int]]) -> None:
    tracker, total = Tracker(sites=5, alpha=alpha, scheme="deterministic"), 0
    for site, n in stream:
        tracker.site(site).add(n)
        total += n
        assert tracker.answer.contains(total)


def test_adversary_that_reads_the_answers_does_not_break_deterministic() -> None:
    """It always feeds the site whose last event moved the answer least, to collect unreported events everywhere."""
    tracker, rng = Tracker(sites=10, alpha=0.1, scheme="deterministic"), SeededRandom(1)
    site = 0
    for total in range(1, 20_001):
        before = tracker.answer.estimate
        tracker.site(site).add()
        assert tracker.answer.contains(total)
        if tracker.answer.estimate != before:
            site = rng.randbelow(10)


def test_deterministic_has_one_round_and_no_message_down() -> None:
    tracker = Tracker(sites=3, alpha=0.1, scheme="deterministic")
    for event in range(5_000):
        tracker.site(event % 3).add()
    assert (tracker.answer.round, tracker.messages.down) == (0, 0)


def test_deterministic_message_count_follows_the_formula() -> None:
    """k/ln(rho) an e-fold: from 10^4 to 10^4 e^2 at each of 4 sites, within 2 %."""
    tracker = Tracker(sites=4, alpha=0.01, scheme="deterministic")
    for site in range(4):
        tracker.site(site).add(10_000)
    before = tracker.messages.up
    for _ in range(63_890):
        for site in range(4):
            tracker.site(site).add()
    per_site = (tracker.messages.up - before) / 4
    assert per_site == pytest.approx(2 / 0.0200007, rel=0.02)


def test_deterministic_is_exact_while_a_report_covers_one_count() -> None:
    tracker = Tracker(sites=2, alpha=0.1, scheme="deterministic")
    for total in range(1, 9):
        tracker.site(total % 2).add()
        assert (tracker.answer.estimate, tracker.answer.state) == (total, State.EXACT)
    tracker.site(0).add(1)  # at 5, a report can stand for 6
    assert tracker.answer.state is State.HOLDING


def test_departed_site_is_known_exactly() -> None:
    tracker = Tracker(sites=1, alpha=0.1, scheme="deterministic")
    tracker.site(0).add(1000)
    assert tracker.answer.state is State.HOLDING
    tracker.remove_site(0)
    assert tracker.messages.up == 2
    assert tracker.debug_state().estimator.estimate == 1000
    assert tracker.debug_state().estimator.exact


@given(st.lists(st.integers(0, 10**20), min_size=1, max_size=8), st.integers(0, 10**20))
def test_estimate_is_within_alpha_of_every_possible_total(counts: list[int], departed: int) -> None:
    made = DeterministicEstimator(0.1)
    made.start([Entry(SiteId(slot), count, slot) for slot, count in enumerate(counts)], departed)
    least = departed + sum(counts)
    most = departed + sum(GeometricGrowth(0.1).max_count_covered(count) for count in counts)
    for total in (least, most):
        assert within(made.estimate, 0.1, total)
