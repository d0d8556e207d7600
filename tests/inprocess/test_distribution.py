"""`Distribution`: ranks and quantiles beside the sorted observations, with sites that come and go."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from fractions import Fraction
from itertools import accumulate
from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

import countless
from countless.core.family.distribution import ZERO, Buckets, Ranks
from countless.core.family.messages import OVERFLOW
from countless.errors import InvalidParameter
from countless.inprocess.distribution import Distribution

VALUES = st.one_of(st.just(0.0), st.sampled_from([1, 2, 3, 5, 1000]), st.floats(1e-3, 1e6))
OBSERVATIONS = st.lists(st.tuples(st.integers(0, 5), VALUES, st.sampled_from([1, 1, 1, 4, 30])), max_size=80)


@given(OBSERVATIONS, st.sampled_from([0.02, 0.1, 0.3]), st.lists(st.integers(0, 80), max_size=4))
def test_ranks_and_quantiles_hold_after_every_observation(
    observations: list[tuple[int, float, int]], epsilon: float, churn: list[int]
) -> None:
    """`churn` are the observations at which site 2 joins, or leaves if it has joined."""
    tracked, truth = Distribution(sites=2, epsilon=epsilon, accuracy=0.05), list[float]()
    sites = [0, 1]
    for number, (index, value, n) in enumerate(observations):
        if number in churn and 2 in sites:
            tracked.remove_site(sites.pop())
        elif number in churn:
            tracked.add_site(2)
            sites.append(2)
        tracked.site(sites[index % len(sites)]).observe(value, n)
        for _ in range(n):
            insort(truth, value)
        check(tracked, truth, epsilon)


def check(tracked: Distribution, truth: list[float], epsilon: float) -> None:
    total, buckets = len(truth), Buckets(0.05)
    for value in (0.5, 3, 2000):
        rank = tracked.rank(value)
        assert rank.lower <= bisect_right(truth, value) <= rank.upper
    for q in (0.0, 0.07, 0.1, 0.14, 0.5, 0.55, 0.9, 1.0):
        quantile = tracked.quantile(q)
        assert quantile is not None
        true = truth[max(0, ceil(Fraction(repr(q)) * total) - 1)]
        assert quantile.lower <= true <= quantile.upper
        low, high = buckets.edges(buckets.index(quantile.estimate))
        first, last = bisect_left(truth, low * (1 + 1e-9)), bisect_right(truth, high * (1 + 1e-9))
        error = max(q, 1 - q) * epsilon * total + 1
        assert first <= q * total + error
        assert last >= q * total - error


LABELS = st.one_of(st.just(ZERO), st.just(OVERFLOW), st.integers(-40, 40).map(str))


@given(st.dictionaries(LABELS, st.integers(0, 9), max_size=8), st.integers(0, 5), st.floats(0, 1), st.floats(0, 100))
def test_ranks_and_quantiles_are_those_of_reading_all_buckets(
    counts: dict[str, int], held_back: int, q: float, value: float
) -> None:
    buckets = Buckets(0.05)
    ranks, index = Ranks(counts, held_back, buckets), buckets.index(value)
    hidden = held_back + counts.get(OVERFLOW, 0)
    numbers = {None if label == ZERO else int(label): n for label, n in counts.items() if label}
    order = sorted(numbers, key=lambda each: -inf if each is None else each)
    below = sum(numbers[each] for each in order if each is None or (index is not None and each < index))
    below = 0 if index is None else below
    assert ranks.rank(value) == (value, below, below + numbers.get(index, 0) + hidden)

    def at(rank: Fraction) -> int | None:
        seen = list(accumulate(numbers[each] for each in order))
        return next(
            (each for each, reached in zip(order, seen, strict=True) if reached >= max(Fraction(1), rank)), order[-1]
        )

    known, found = sum(numbers.values()), ranks.quantile(q)
    if not known:
        assert found is None
        return
    share = Fraction(repr(q))
    lowest, highest = share * known - (1 - share) * hidden, share * (known + hidden)
    lower = 0.0 if hidden and lowest <= 0 else buckets.edges(at(lowest))[0]
    upper = buckets.edges(at(highest))[1] if highest <= known else inf
    assert found == (q, buckets.middle(at(share * known)), lower, upper)


def test_estimate_is_within_the_accuracy_of_a_value() -> None:
    tracked = Distribution(sites=1, accuracy=0.01)
    for value in (0.001, 17.0, 40_000.0):
        tracked.site(0).observe(value)
    for q, value in ((0.1, 0.001), (0.5, 17.0), (1.0, 40_000.0)):
        quantile = tracked.quantile(q)
        assert quantile is not None
        assert abs(quantile.estimate - value) <= 0.01 * value * (1 + 1e-9)


def test_highest_quantiles_have_no_upper_bound_while_observations_are_held_back() -> None:
    tracked = Distribution(sites=2, epsilon=0.2)
    for number in range(1000):
        tracked.site(number % 2).observe(number + 1)
    highest, median = tracked.quantile(1.0), tracked.quantile(0.5)
    assert highest is not None
    assert median is not None
    assert highest.upper == inf
    assert median.upper < 1000


def test_one_message_has_all_buckets_that_changed() -> None:
    tracked = Distribution(sites=1, epsilon=0.1)
    for number in range(10_000):
        tracked.site(0).observe(number % 50 + 1)
    assert tracked.messages.total < 220
    assert tracked.counts_sent > 5 * tracked.messages.up


def test_no_observation_has_no_quantile() -> None:
    tracked = Distribution()
    assert tracked.quantile(0.5) is None
    assert tracked.rank(1).upper == 0
    assert countless.Distribution is Distribution


@pytest.mark.parametrize("value", [-1, float("nan"), inf, "1", True])
def test_value_out_of_range_changes_nothing(value: float) -> None:
    tracked = Distribution(sites=1)
    with pytest.raises(InvalidParameter, match="value"):
        tracked.site(0).observe(value)
    assert tracked.quantile(0.5) is None


@pytest.mark.parametrize("q", [-0.1, 1.1, "0.5", True, float("nan")])
def test_quantile_out_of_range_is_refused(q: float) -> None:
    with pytest.raises(InvalidParameter, match="q ="):
        Distribution().quantile(q)


@pytest.mark.parametrize("arguments", [{"accuracy": 0}, {"accuracy": 0.6}, {"epsilon": 0}, {"name": 1}])
def test_arguments_out_of_range_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        Distribution(**arguments)  # type: ignore[arg-type]


@given(
    known=st.lists(st.integers(1, 60), max_size=30),
    beyond=st.lists(st.integers(1, 60), max_size=5),
    held_back=st.lists(st.integers(1, 60), max_size=5),
    q=st.sampled_from((0.0, 0.07, 0.1, 0.14, 0.5, 0.55, 0.9, 1.0)),
    value=st.integers(0, 70),
)
def test_ranks_hold_with_values_beyond_the_cap_and_values_that_are_held_back(
    known: list[int], beyond: list[int], held_back: list[int], q: float, value: int
) -> None:
    """Of the values beyond the cap on labels only the number is known, of those that are held back not even that."""
    buckets, everything = Buckets(0.05), sorted(known + beyond + held_back)
    counts = Counter(buckets.label(each) for each in known)
    counts[OVERFLOW] += len(beyond)
    ranks = Ranks(counts, len(held_back), buckets)
    _, lower, upper = ranks.rank(value)
    assert lower <= bisect_right(everything, value) <= upper
    found = ranks.quantile(q)
    assert (found is None) == (not known)
    if found is not None:
        true = everything[max(0, ceil(Fraction(repr(q)) * len(everything)) - 1)]
        assert found.lower <= true <= found.upper, (found, true)
