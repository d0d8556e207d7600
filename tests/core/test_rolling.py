"""Rolling counts from sparse records of answers: the true count is always between the bounds."""

from bisect import bisect_right
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from countless.core.periods.rolling import PastTotals, TotalRecord, count_since, narrower
from countless.core.periods.spans import SpanCount
from countless.core.periods.window import WindowState


class World:
    """Events at known moments, and what was published of them at some of the moments."""

    def __init__(self, random: Random, alpha: float) -> None:
        self._random, self._alpha = random, alpha
        moments = [random.random() * 100 for _ in range(random.randrange(60))]
        bursts = [random.random() * 100] * random.randrange(30)
        self.events = sorted(moments + bursts)

    def total(self, moment: float) -> int:
        return bisect_right(self.events, moment)

    def record(self, moment: float, holds: bool) -> TotalRecord:
        """An answer within alpha. While a site is away, it is within alpha of a total that has less."""
        total = self.total(moment)
        if not holds:
            total = self._random.randint(0, total)
        estimate = total * (1 + self._alpha * self._random.uniform(-1, 1))
        return TotalRecord(moment, estimate, estimate / (1 + self._alpha), estimate / (1 - self._alpha), holds)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.01, 0.2]), st.booleans())
def test_true_count_is_between_the_bounds(seed: int, alpha: float, holds_now: bool) -> None:
    """Any records may be missing; some were made while a site could not be reached."""
    random = Random(seed)  # noqa: S311
    world = World(random, alpha)
    moments = sorted(random.random() * 100 for _ in range(random.randint(1, 12)))
    records = [world.record(moment, random.random() < 0.8) for moment in moments[:-1]]
    records.append(world.record(moments[-1], holds_now))
    for then in [*moments, *(random.uniform(-10, moments[-1]) for _ in moments)]:
        true = world.total(moments[-1]) - world.total(then)
        count = count_since(records, then)
        assert count.lower <= true
        assert true <= count.upper or not holds_now
        assert count.lower <= count.estimate <= count.upper
        assert (count.known_since is None) == (then >= moments[0] or records[0].upper == 0)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.01, 0.2]))
def test_true_count_of_a_span_that_is_over_is_between_the_bounds(seed: int, alpha: float) -> None:
    """Its ends are anywhere between records; the last record holds."""
    random = Random(seed)  # noqa: S311
    world = World(random, alpha)
    moments = sorted(random.random() * 100 for _ in range(random.randint(1, 12)))
    records = [world.record(moment, random.random() < 0.8) for moment in moments[:-1]]
    past = PastTotals([*records, world.record(moments[-1], holds=True)])
    ends = [*moments, *(random.uniform(-10, moments[-1]) for _ in moments)]
    for start, end in ((start, end) for start in ends for end in ends if start <= end):
        count = past.count(start, end)
        assert count.lower <= world.total(end) - world.total(start) <= count.upper
        assert count.lower <= count.estimate <= count.upper


def exact(moment: float, total: int, holds: bool = True) -> TotalRecord:
    return TotalRecord(moment, total, total, total, holds)


def test_exact_records_at_both_ends_give_the_exact_count() -> None:
    count = count_since([exact(0, 5), exact(10, 20), exact(15, 20), exact(40, 60)], then=10)
    assert (count.start, count.end) == (10, 40)
    assert (count.lower, count.estimate, count.upper, count.exact) == (40, 40, 40, True)


def test_count_between_two_records_lies_between_both() -> None:
    count = count_since([exact(0, 0), exact(100, 80), exact(110, 90)], then=25)
    assert (count.lower, count.estimate, count.upper) == (10, 70, 90)


def test_span_that_begins_before_the_first_record_has_what_came_after_it() -> None:
    count = count_since([exact(1000, 7000), exact(1100, 7500)], then=200)
    assert (count.lower, count.estimate, count.upper, count.known_since) == (500, 500, 7500, 1000)


def test_first_record_of_nothing_is_all_there_is_to_know() -> None:
    count = count_since([exact(1000, 0), exact(1100, 7500)], then=200)
    assert (count.lower, count.upper, count.known_since) == (7500, 7500, None)


def test_upper_bound_is_not_taken_from_a_time_when_sites_were_away() -> None:
    """At 20 a site had counted 100 that were not known; they arrived at 30."""
    records = [exact(10, 50), exact(20, 50, holds=False), exact(30, 150), exact(40, 160)]
    count = count_since(records, then=15)
    assert (count.lower, count.upper) == (10, 110)


def test_without_any_record_that_holds_nothing_is_certain_but_the_upper_bound_of_the_answer() -> None:
    count = count_since([exact(10, 50, holds=False), exact(20, 80, holds=False)], then=15)
    assert (count.lower, count.upper) == (0, 30)


def test_answer_that_became_less_accurate_does_not_take_back_what_was_known() -> None:
    records = [
        TotalRecord(0, 100, 99, 101, True),
        TotalRecord(10, 110, 80, 150, True),
        TotalRecord(20, 110, 80, 150, True),
    ]
    count = count_since(records, then=5)
    assert (count.lower, count.upper) == (0, 150 - 99)


def test_spans_between_exact_records_are_exact_and_add_up() -> None:
    past = PastTotals([exact(0, 5), exact(10, 20), exact(15, 20), exact(40, 60)])
    assert [past.count(*ends)[2:5] for ends in ((0, 10), (10, 15), (15, 40))] == [(15,) * 3, (0,) * 3, (40,) * 3]


def span(lower: int, estimate: int, upper: int, known_since: float | None = None) -> SpanCount:
    return SpanCount(0, 10, lower, estimate, upper, WindowState.OPEN, known_since=known_since)


def test_two_counts_of_a_span_are_narrower_together() -> None:
    both = narrower(span(5, 30, 50, known_since=3.0), span(10, 12, 20))
    assert both == span(10, 12, 20)
    assert narrower(span(5, 12, 14), span(10, 50, 90)) == span(10, 12, 14)
    assert narrower(span(5, 12, 14), span(13, 13, 13)) == span(13, 13, 13)
    assert narrower(span(5, 12, 14), span(5, 12, 14)._replace(lost=2)).lost == 2
    assert narrower(span(0, 1, 9, 4.0), span(0, 1, 9, 2.0)).known_since == 2.0


def test_counts_that_contradict_each_other_are_the_first() -> None:
    assert narrower(span(5, 6, 7), span(8, 9, 10)) == span(5, 6, 7)
