"""The binary mechanism: private running sums of a stream (paper, appendix; Chan, Shi, Song 2011).

Input t is added to one open node per level; a node covers a dyadic range of inputs and gets its noise once,
when it is completed. The prefix sum up to t is the sum of the nodes named by the binary digits of t, so its
noise is a sum of popcount(t) Laplace variables. Memory is O(log length).

Correction to the paper: an input enters up to `floor(log2 length) + 1` nodes, not `log length`, so noise of
scale `(floor(log2 length) + 1)/epsilon` is what makes the stream of answers epsilon-private.
"""

from fractions import Fraction
from math import isfinite

from countless.core.parameters import require_integer
from countless.errors import InvalidParameter
from countless.privacy.noise import Noise, check_scale


def tree_levels(length: int) -> int:
    """The largest number of nodes one input enters: floor(log2 length) + 1; 0 for an empty stream.

    >>> [tree_levels(length) for length in (0, 1, 2, 3, 4, 7, 8)]
    [0, 1, 2, 2, 3, 3, 4]
    """
    return length.bit_length()


def nodes_of(position: int, length: int) -> tuple[int, ...]:
    """The nodes, named by the input that completes them, that input `position` (from 1) enters.

    Node t covers the inputs (t - lowbit(t), t], so these are the steps of a Fenwick tree.

    >>> nodes_of(3, 8)
    (3, 4, 8)
    """
    nodes = []
    while position <= length:
        nodes.append(position)
        position += position & -position
    return tuple(nodes)


def pair_sensitivity(length: int) -> int:
    """In how many nodes, at most, a stream changes when one input rises by 1 and another may fall by 1.

    `2 levels - 1`: sizes double along an input's nodes, so an input with all `levels` of them is in the one
    node of the largest size; if both inputs are, their changes cancel there. It is attained when length =
    2^levels - 1.

    >>> [pair_sensitivity(length) for length in (0, 1, 3, 7)]
    [0, 1, 3, 5]
    """
    return max(0, 2 * tree_levels(length) - 1)


def node_scale(length: int, epsilon: Fraction | float) -> Fraction:
    """Noise for each node that makes `length` inputs epsilon-private, when one input changes by at most 1."""
    if not (isfinite(epsilon) and epsilon > 0):
        raise InvalidParameter("epsilon", epsilon, "finite and above 0")
    return tree_levels(length) / Fraction(epsilon)


class BinaryMechanism:
    """Noisy prefix sums of integers, one input at a time.

    Formal guarantees: all the answers together are epsilon-differentially private for streams that differ
    by at most 1 in one input. The answer after t inputs is the true prefix sum plus popcount(t) independent
    integer Laplace variables of scale `scale`.

    >>> from countless.privacy.noise import RandomSourceNoise
    >>> from countless.randomness import SeededRandom
    >>> mechanism = BinaryMechanism(8, Fraction(2), RandomSourceNoise(SeededRandom(3)))
    >>> [mechanism.add(10) for _ in range(4)]
    [11, 27, 35, 40]
    """

    __slots__ = ("_added", "_exact", "_noise", "_noisy", "length", "scale")

    def __init__(self, length: int, epsilon: Fraction | float, noise: Noise) -> None:
        self._start(length, noise)
        self.scale = node_scale(length, epsilon)

    @classmethod
    def with_scale(cls, length: int, scale: Fraction, noise: Noise) -> "BinaryMechanism":
        """With the noise scale of each node given; scale 0 gives the exact running sum."""
        mechanism = object.__new__(cls)
        mechanism._start(length, noise)
        mechanism.scale = check_scale(scale)
        return mechanism

    def _start(self, length: int, noise: Noise) -> None:
        require_integer("length", length, 1)
        self.length = length
        self._noise = noise
        self._added = 0
        self._exact = [0] * tree_levels(length)
        self._noisy = [0] * tree_levels(length)

    def add(self, value: int) -> int:
        """Add the next input and return the noisy sum of all inputs so far."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidParameter("value", value, "an integer")
        if self._added >= self.length:
            raise InvalidParameter("inputs", self._added + 1, f"at most {self.length}: more would not be private")
        self._added += 1
        level = (self._added & -self._added).bit_length() - 1
        # The completed node takes over everything below it, which is emptied.
        self._exact[level] = value + sum(self._exact[:level])
        for below in range(level):
            self._exact[below] = self._noisy[below] = 0
        self._noisy[level] = self._exact[level] + self._noise.laplace(self.scale)
        return sum(self._noisy)
