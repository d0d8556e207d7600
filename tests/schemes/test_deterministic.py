"""`deterministic`: always within alpha, also if the stream depends on the answers."""

from fractions import Fraction
from math import log

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
from support.streams import stream_named


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


def test_error_is_within_alpha_and_the_rounding_of_a_double() -> None:
    """In exact arithmetic. Only 9.9 is within 10 % of both 9 and 11, and the double is a little more."""
    excess = Fraction(0)
    for alpha in ("0.1", "0.05", "0.3"):
        tracker = Tracker(sites=1, alpha=float(alpha), scheme="deterministic")
        for total in range(1, 1_000):
            tracker.site(0).add()
            error = abs(Fraction(tracker.answer.estimate) - total)
            excess = max(excess, (error - Fraction(alpha) * total) / total)
    assert 0 < excess <= Fraction(1, 2**50)


def test_sites_that_have_left_lend_what_they_might_have_kept_and_claim_no_share() -> None:
    def messages(left: int) -> int:
        tracker = Tracker(sites=2, alpha=0.05, scheme="deterministic")
        for name in [f"left {number}" for number in range(left)]:
            site = tracker.add_site(name)
            for _ in range(40):
                site.add(25)
            tracker.remove_site(name)
        before = tracker.messages.total
        for number in range(4000):
            tracker.site(0).add(5)
            tracker.site(1).add(int(number % 50 == 0))
        return tracker.messages.total - before

    assert messages(20) < messages(5) < messages(0) / 2


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
    assert tracker._debug_state().estimator.known == (1000, 1000)


def test_small_site_still_reports_after_a_huge_one_has_left() -> None:
    """The sum of the roots, in doubles, is 3, then 2**64, then 0 and -1, where the root of the last site is 2."""
    tracker = Tracker(sites=3, alpha=0.3, scheme="deterministic")
    for site, n in [(2, 1), (0, 4), (1, 2**128)]:
        tracker.site(site).add(n)
    tracker.remove_site(1)
    tracker.remove_site(2)
    for n in (5, 90):
        tracker.site(0).add(n)
    known = tracker._debug_state().answer.known
    assert known is not None
    assert known[0] == 2**128 + 100


@given(st.lists(st.integers(0, 10**20), min_size=1, max_size=8), st.integers(0, 10**20))
def test_estimate_is_within_alpha_of_every_possible_total(counts: list[int], departed: int) -> None:
    made = DeterministicEstimator(0.1)
    made.start([Entry(SiteId(slot), count, slot) for slot, count in enumerate(counts)], departed)
    least = departed + sum(counts)
    most = departed + sum(GeometricGrowth(0.1).max_count_covered(count) for count in counts)
    for total in (least, most):
        assert within(made.estimate, 0.1, total)


@given(
    st.sampled_from([0.01, 0.05, 0.2, 0.4]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60), st.integers(0, 9)), max_size=80),
)
def test_what_is_borrowed_is_never_more_than_what_is_lent(alpha: float, stream: list[tuple[int, int, int]]) -> None:
    """Whatever the batches, and whenever a site leaves: the largest total that the reports allow is small enough."""
    tracker, total = Tracker(sites=4, alpha=alpha, scheme="deterministic"), 0
    growth = GeometricGrowth(alpha).growth
    left: set[int] = set()
    for site, n, leaves in stream:
        n = n**3 if site == 0 else n  # one busy site
        if site in left:
            continue
        tracker.site(site).add(n)
        total += n
        if leaves == 0 and len(left) < 2:
            tracker.remove_site(site)
            left.add(site)
        known = tracker._debug_state().answer.known
        assert known is not None
        least, most = known
        assert least <= total <= most
        assert most - least <= growth * least


def test_bounds_are_what_the_reports_allow() -> None:
    tracker = Tracker(sites=2, alpha=0.1, scheme="deterministic")
    tracker.site(0).add(4)
    assert (tracker.answer.lower, tracker.answer.upper) == (4, 4)
    tracker.site(0).add(996)
    assert (tracker.answer.lower, tracker.answer.estimate, tracker.answer.upper) == (1000, 1100, 1222)
    tracker.site(0).add(100)  # not reported
    assert tracker.answer.contains(1100)
    tracker.remove_site(0)
    assert (tracker.answer.lower, tracker.answer.estimate, tracker.answer.upper) == (1100, 1100, 1100)


@pytest.mark.slow
def test_skewed_traffic_costs_less_than_a_tolerance_by_count() -> None:
    """Zipf traffic at 100 sites, whole stream from the first event, against the triggers that all sites start with."""
    tracker = Tracker(sites=100, alpha=0.05, scheme="deterministic")
    counts, points, plain = [0] * 100, [1] * 100, 0
    trigger = GeometricGrowth(0.05)
    for site, n in stream_named("zipf", 100, 30_000, seed=1):
        tracker.site(site).add(n)
        counts[site] += n
        if counts[site] >= points[site]:
            plain += 1
            points[site] = trigger.next_point(counts[site])
    assert tracker.messages.down > 0
    assert tracker.messages.total <= 0.9 * plain


def test_site_takes_back_what_it_has_lent_and_no_other_has_borrowed() -> None:
    """One event of each site, then all of one site: it lends early, when the others may still grow. They do not."""
    tracker = Tracker(sites=100, alpha=0.01, scheme="deterministic")
    for site in range(100):
        tracker.site(site).add()
    busy = tracker.site(0)
    for _ in range(20_000):
        busy.add()
    assert tracker.messages.down == 2  # a smaller tolerance, and the first one again
    sent = tracker.messages.up
    for _ in range(20_000):
        busy.add()
    assert tracker.messages.up - sent == pytest.approx(log(2) / log(1.01 / 0.99), abs=1)  # as the only site


@pytest.mark.slow
@pytest.mark.parametrize(("sites", "alpha"), [(20, 0.01), (20, 0.05), (100, 0.05)])
def test_round_robin_traffic_does_not_make_sites_report_together(sites: int, alpha: float) -> None:
    """The root mean square error, in units of alpha: 0.52 to 0.56 if all sites have the same phase."""
    tracker, squares, events = Tracker(sites=sites, alpha=alpha, scheme="deterministic"), 0.0, 1000 * sites
    for total in range(1, events + 1):
        tracker.site(total % sites).add()
        squares += ((tracker.answer.estimate - total) / (alpha * total)) ** 2
    assert (squares / events) ** 0.5 <= 0.2
    assert tracker.messages.down == 0
