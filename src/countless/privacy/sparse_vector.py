"""The sparse vector technique: which of many counts are above a threshold, for the price of those that are.

Lyu, Su, Li, "Understanding the sparse vector technique for differential privacy", VLDB 2017, Algorithm 1, with integer
counts and integer noise. `countless.privacy.thresholds` has the cheaper one of the paper: it needs no noise on the
counts, because the point that made a count pass is leaked.
"""

from fractions import Fraction
from math import isfinite

from countless.core.parameters import require_integer
from countless.errors import InvalidParameter
from countless.privacy.guarantee import PartialDPGuarantee
from countless.privacy.noise import Noise


class SparseVector:
    """Answers whether counts, chosen adaptively, are above `threshold`, until `most` of them were.

    Formal guarantees: all answers together are epsilon-private, if one point of the data moves every count by at most
    `sensitivity`. Half of epsilon hides the threshold, half the counts. `guarantee` has it as a value; `left` is how
    many more counts may be above.

    >>> from countless.privacy.noise import RandomSourceNoise
    >>> from countless.randomness import SeededRandom
    >>> vector = SparseVector(100, 2, Fraction(1), RandomSourceNoise(SeededRandom(1)))
    >>> [vector.above(count) for count in (10, 200, 20, 300)]
    [False, True, False, True]
    >>> vector.left
    0
    """

    __slots__ = ("_level", "_noise", "_scale", "guarantee", "left")

    def __init__(
        self, threshold: int, most: int, epsilon: Fraction | float, noise: Noise, sensitivity: int = 1
    ) -> None:
        require_integer("most", most, 1)
        require_integer("sensitivity", sensitivity, 1)
        if not (isfinite(epsilon) and epsilon > 0):
            raise InvalidParameter("epsilon", epsilon, "finite and above 0")
        half = Fraction(epsilon) / 2
        self.guarantee = PartialDPGuarantee(float(epsilon))
        self.left = most
        self._noise = noise
        self._level = threshold + noise.laplace(sensitivity / half)
        self._scale = 2 * most * sensitivity / half

    def above(self, count: int) -> bool:
        """True if the count, with noise, is at least the threshold, with noise; refused once `left` is 0."""
        if isinstance(count, bool) or not isinstance(count, int):
            raise InvalidParameter("count", count, "an integer")
        if not self.left:
            message = "no count can be compared any longer: every answer that was paid for has been given"
            raise InvalidParameter("left", self.left, message=message)
        found = count + self._noise.laplace(self._scale) >= self._level
        self.left -= found
        return found
