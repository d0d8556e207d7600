"""Private thresholds and the phased counter."""

from fractions import Fraction

import pytest

from countless.errors import InvalidParameter
from countless.privacy.noise import RandomSourceNoise
from countless.privacy.thresholds import PhasedCounter, PhasedShape, PrivateThreshold
from countless.randomness import SeededRandom
from countless_lab.audit.exact_audit import TapeNoise

SHAPE = PhasedShape(3, 4, Fraction(2), 2, Fraction(3))


def test_phases_end_at_their_noisy_thresholds() -> None:
    # noise: first threshold 4+1, node 10, second 4-2, node 20, third 4+0
    counter = PhasedCounter(SHAPE, TapeNoise((1, 10, -2, 20, 0)))
    moved = [i for i in range(1, 12) if counter.crossing()]
    assert moved == [5, 7, 11]
    assert counter.released == [
        15,
        27,
    ]  # 5 + 10, then 7 + 20: the second release is node 2, which covers both
    assert counter.value == 27
    assert counter.finished


def test_threshold_below_zero_ends_its_phase_at_its_start() -> None:
    counter = PhasedCounter(SHAPE, TapeNoise((-4, 0, -9, 0, 0)))
    assert (counter.ended, counter.released) == (2, [0, 0])  # before any crossing
    counter = PhasedCounter(SHAPE, TapeNoise((0, 0, -4, 0, 0)))
    assert [counter.crossing() for _ in range(4)] == [False, False, False, True]
    assert counter.ended == 2


def test_finished_counter_refuses_crossings() -> None:
    counter = PhasedCounter(SHAPE, TapeNoise((-4, 0, -4, 0, -4)))
    assert counter.finished
    with pytest.raises(InvalidParameter, match="crossings"):
        counter.crossing()


def test_counter_without_noise_counts_exactly() -> None:
    counter = PhasedCounter(PhasedShape(100, 1, Fraction(0), 99, Fraction(0)), RandomSourceNoise(SeededRandom(1)))
    values = []
    for _ in range(50):
        counter.crossing()
        values.append(counter.value)
    assert values == list(range(1, 51))


def test_private_threshold_is_threshold_plus_noise() -> None:
    threshold = PrivateThreshold(10, Fraction(1), TapeNoise((-3,)))
    assert not threshold.reached(6)
    assert threshold.reached(7)


def test_epsilon_of_phased_shapes() -> None:
    assert SHAPE.epsilon == Fraction(2, 2) + Fraction(3, 3)  # two levels: 2 * 2 - 1 nodes
    assert PhasedShape(1, 4, Fraction(2), 1, Fraction(3)).epsilon == Fraction(1, 2)  # one threshold, no release
    with pytest.raises(InvalidParameter, match="noise"):
        _ = PhasedShape(3, 4, Fraction(0), 2, Fraction(3)).epsilon


@pytest.mark.parametrize("field", ["phases", "threshold", "tree_length"])
def test_invalid_phased_shapes_are_refused(field: str) -> None:
    good = {"phases": 3, "threshold": 4, "tree_length": 2}
    with pytest.raises(InvalidParameter, match=field):
        PhasedShape(**(good | {field: 0}), threshold_scale=Fraction(1), tree_scale=Fraction(1))
