"""The sparse vector technique: its privacy by exact sums over the noise, and its limit."""

from fractions import Fraction
from itertools import product
from math import exp

import pytest

from countless.errors import InvalidParameter
from countless.privacy import RandomSourceNoise, SparseVector
from countless.randomness import SeededRandom


class Scales:
    def __init__(self) -> None:
        self.asked: list[Fraction] = []

    def laplace(self, scale: Fraction) -> int:
        self.asked.append(scale)
        return 0


def at_least(x: int, scale: float) -> float:
    c = exp(-1 / scale)
    return c**x / (1 + c) if x >= 0 else 1 - c ** (1 - x) / (1 + c)


def likelihood(counts: tuple[int, ...], answers: tuple[bool, ...], most: int, epsilon: float) -> float:
    """P(answers) with threshold 3: a sum over the noise of the threshold, the noises of the counts in closed form."""
    b, scale = 2 / epsilon, 4 * most / epsilon
    c, total = exp(-1 / b), 0.0
    for noise in range(-50, 51):
        weight = (1 - c) / (1 + c) * c ** abs(noise)
        for count, answer in zip(counts, answers, strict=True):
            above = at_least(3 + noise - count, scale)
            weight *= above if answer else 1 - above
        total += weight
    return total


def test_sparse_vector_is_private() -> None:
    """Every pattern of answers and every change of the counts by at most 1, on short streams."""
    epsilon, most = 1.0, 1
    worst = 0.0
    for counts in ((0, 0, 0), (0, 4, 2), (4, 0, 4), (2, 2, 2)):
        for change in product((-1, 0, 1), repeat=3):
            other = tuple(a + b for a, b in zip(counts, change, strict=True))
            for first in range(4):  # the first count that is above ends it
                answers = (False,) * first + (True,) * (first < 3)
                cut = len(answers)
                mine = likelihood(counts[:cut], answers, most, epsilon)
                worst = max(worst, mine / likelihood(other[:cut], answers, most, epsilon))
    assert exp(epsilon / 2) < worst <= exp(epsilon)


def test_noise_of_sparse_vector_has_the_scales_of_the_proof() -> None:
    noise = Scales()
    vector = SparseVector(3, 2, Fraction(1), noise, sensitivity=3)
    vector.above(5)
    assert noise.asked == [Fraction(6), Fraction(24)]
    assert vector.guarantee.epsilon == 1
    assert vector.guarantee.kappa == 0


def test_no_answers_after_the_last_one_that_was_above() -> None:
    vector = SparseVector(0, 1, Fraction(100), RandomSourceNoise(SeededRandom(1)))
    assert not vector.above(-50)
    assert vector.above(50)
    with pytest.raises(InvalidParameter, match="no count can be compared"):
        vector.above(0)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("most", (0, 0, 1.0)),
        ("epsilon", (0, 1, 0.0)),
        ("epsilon", (0, 1, float("inf"))),
        ("sensitivity", (0, 1, 1.0, 0)),
    ],
)
def test_invalid_sparse_vectors_are_refused(field: str, arguments: tuple[int, int, float, int]) -> None:
    threshold, most, epsilon, *rest = arguments
    with pytest.raises(InvalidParameter, match=field):
        SparseVector(threshold, most, epsilon, Scales(), *rest)
