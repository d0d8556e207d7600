"""The binary mechanism against a reference that keeps everything; its counts of nodes by brute force."""

import tracemalloc
from fractions import Fraction
from itertools import combinations

import pytest

from countless.errors import InvalidParameter
from countless.privacy.binary_mechanism import (
    BinaryMechanism,
    node_scale,
    nodes_of,
    pair_sensitivity,
    tree_levels,
)
from countless.privacy.noise import RandomSourceNoise
from countless.randomness import SeededRandom


class Recorder:
    """Noise that returns 1, 10, 100, ... by turns, so that every node's noise shows in the sums."""

    def __init__(self) -> None:
        self.drawn: list[int] = []
        self.scales: set[Fraction] = set()

    def laplace(self, scale: Fraction) -> int:
        self.scales.add(scale)
        self.drawn.append(1000 ** len(self.drawn))
        return self.drawn[-1]


def test_binary_mechanism_matches_a_reference() -> None:
    """After t inputs: the true sum, plus the noise of the nodes named by the binary digits of t."""
    length, noise = 37, Recorder()
    mechanism = BinaryMechanism(length, Fraction(1), noise)
    values = [SeededRandom(3).spawn(t).randbelow(100) - 50 for t in range(length)]
    for t in range(1, length + 1):
        answer = mechanism.add(values[t - 1])
        nodes, rest = [], t
        while rest:
            nodes.append(rest)
            rest -= rest & -rest
        assert answer == sum(values[:t]) + sum(noise.drawn[node - 1] for node in nodes)
        assert len(nodes) == t.bit_count()
    assert noise.scales == {Fraction(6)}  # floor(log2 37) + 1 levels, epsilon 1


@pytest.mark.soak
def test_binary_mechanism_memory_is_logarithmic() -> None:
    """Two numbers for each of 30 levels are some 3,000 bytes; one for each input would be 80,000 at least."""
    tracemalloc.start()
    mechanism = BinaryMechanism(10**9, 1.0, RandomSourceNoise(SeededRandom(1)))
    for _ in range(10_000):
        mechanism.add(1)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 20_000


def test_binary_mechanism_without_noise_is_the_running_sum() -> None:
    mechanism = BinaryMechanism.with_scale(100, Fraction(0), RandomSourceNoise(SeededRandom(1)))
    assert [mechanism.add(t) for t in range(100)] == [t * (t + 1) // 2 for t in range(100)]


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 31, 32, 33])
def test_tree_levels_is_the_largest_number_of_nodes_of_an_input(length: int) -> None:
    """The paper divides by log L; an input may enter one node more (claim: corrections)."""
    entered = {
        position: [t for t in range(1, length + 1) if t - (t & -t) < position <= t] for position in range(1, length + 1)
    }
    assert all(tuple(nodes) == nodes_of(position, length) for position, nodes in entered.items())
    assert max(map(len, entered.values())) == tree_levels(length)


@pytest.mark.parametrize("length", range(1, 40))
def test_pair_sensitivity_bounds_the_nodes_of_two_inputs(length: int) -> None:
    touched = [len(nodes_of(position, length)) for position in range(1, length + 1)]
    pairs = combinations(range(1, length + 1), 2)
    touched += [len(set(nodes_of(a, length)) ^ set(nodes_of(b, length))) for a, b in pairs]
    assert max(touched) <= pair_sensitivity(length)
    if length + 1 == 1 << length.bit_length():
        assert max(touched) == pair_sensitivity(length)


def test_adding_beyond_the_length_raises() -> None:
    mechanism = BinaryMechanism(2, 1.0, RandomSourceNoise(SeededRandom(1)))
    mechanism.add(1)
    mechanism.add(1)
    with pytest.raises(InvalidParameter, match="at most 2"):
        mechanism.add(1)


@pytest.mark.parametrize("length", [0, -1, True, 1.5])
def test_invalid_tree_lengths_are_refused(length: int) -> None:
    with pytest.raises(InvalidParameter, match="length"):
        BinaryMechanism(length, 1.0, RandomSourceNoise(SeededRandom(1)))


@pytest.mark.parametrize("epsilon", [0, -1.0, float("inf"), float("nan")])
def test_invalid_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(InvalidParameter, match="epsilon"):
        node_scale(8, epsilon)


def test_non_integer_inputs_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="value"):
        BinaryMechanism(2, 1.0, RandomSourceNoise(SeededRandom(1))).add(1.5)  # type: ignore[arg-type]
