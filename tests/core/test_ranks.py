"""`Ranks` and `Buckets` are exact: every decimal of three digits, every small number of observations, every edge."""

from itertools import product
from math import inf, nextafter
from random import Random

import pytest

from countless.core.family.distribution import MAX_VALUE, MIN_VALUE, Buckets, Ranks

BUCKETS = Buckets(0.05)
SHARES = [(thousandths, float(f"{thousandths / 1000:.3f}")) for thousandths in range(1001)]


def one_in_each(observations: int) -> dict[str, int]:
    """Buckets 1, 2, 3, ...: the observation of a rank is in the bucket of that number."""
    return {str(number + 1): 1 for number in range(observations)}


def rank_of(thousandths: int, observations: int) -> int:
    """In integers: the least number of observations that is at least this share of them."""
    return max(1, -(-thousandths * observations // 1000))


def test_quantile_is_the_observation_of_its_rank_for_every_decimal_of_three_digits() -> None:
    """With `q * known` in floats, 0.14 of 50 observations was the eighth."""
    for observations in range(1, 101):
        ranks = Ranks(one_in_each(observations), 0, BUCKETS)
        for thousandths, q in SHARES:
            bucket = rank_of(thousandths, observations)
            assert ranks.quantile(q) == (q, BUCKETS.middle(bucket), *BUCKETS.edges(bucket)), (q, observations)


def test_bounds_are_those_of_every_place_of_what_is_held_back() -> None:
    """No wider and no narrower: up to `held_back` observations more, some of them below all that are known."""
    for known, held_back in product(range(1, 9), range(1, 5)):
        ranks = Ranks(one_in_each(known), held_back, BUCKETS)
        for thousandths, q in SHARES:
            possible = [
                rank_of(thousandths, known + more) - below for more in range(held_back + 1) for below in range(more + 1)
            ]
            lower = BUCKETS.edges(min(possible))[0] if min(possible) > 0 else 0.0
            upper = BUCKETS.edges(max(1, *possible))[1] if max(possible) <= known else inf
            found = ranks.quantile(q)
            assert found is not None
            assert found[2:] == (lower, upper), (q, known, held_back)


@pytest.mark.parametrize("q", [0, 1, 1e-300, 0.1 + 0.2, 1 / 3])
def test_any_number_from_0_to_1_is_a_decimal(q: float) -> None:
    """0.1 + 0.2 is 0.30000000000000004, which is more than 3 of 10."""
    found = Ranks(one_in_each(10), 0, BUCKETS).quantile(q)
    assert found is not None
    assert found.estimate == BUCKETS.middle({0: 1, 1: 10, 1e-300: 1}.get(q, 4))


@pytest.mark.parametrize("accuracy", [0.0001, 0.01, 0.05, 1 / 3, 0.5])
def test_every_value_is_between_the_edges_of_its_bucket(accuracy: float) -> None:
    """Also next to an edge, where a logarithm is rounded to the wrong side."""
    buckets, rng = Buckets(accuracy), Random(1)  # noqa: S311
    first, last = buckets.index(MIN_VALUE), buckets.index(MAX_VALUE)
    assert first is not None
    assert last is not None
    edges = [buckets.edges(rng.randint(first, last))[1] for _ in range(500)]
    for edge in [MIN_VALUE, MAX_VALUE, *edges]:
        for value in (nextafter(edge, 0), edge, nextafter(edge, inf)):
            if MIN_VALUE <= value <= MAX_VALUE:
                index = buckets.index(value)
                low, high = buckets.edges(index)
                assert low < value <= high
                assert buckets.has(str(index))
