"""Private thresholds, and the paper's Algorithm 2 built from them and a binary mechanism.

A private threshold hides *how many* events it took to pass it. It cannot hide from the adversary, which caused
the event, that the threshold was passed just now; so the guarantee is partial. `PhasedCounter` counts crossings in
phases: a phase ends at a private threshold, and only then the public value moves, to the noisy sum of all finished
phases.

Corrections to the paper, with reasons: design/proofs/partial-dp.md. A threshold is also tested at the start of its
phase, since its noise may be below `-threshold`.
"""

from dataclasses import dataclass
from fractions import Fraction

from countless.errors import InvalidParameter
from countless.privacy.binary_mechanism import BinaryMechanism, pair_sensitivity
from countless.privacy.noise import Noise, check_scale


@dataclass(frozen=True, slots=True)
class PhasedShape:
    """The numbers of a phased counter. Scale 0 means no noise there."""

    phases: int
    threshold: int
    threshold_scale: Fraction
    tree_length: int
    tree_scale: Fraction

    def __post_init__(self) -> None:
        for name in ("phases", "threshold", "tree_length"):
            if getattr(self, name) < 1:
                raise InvalidParameter(name, getattr(self, name), "at least 1")
        check_scale(self.threshold_scale)
        check_scale(self.tree_scale)

    @property
    def epsilon(self) -> Fraction:
        """The privacy of every transcript off its leaked blocks: `2/threshold_scale + nodes/tree_scale`.

        Moving one crossing changes two phase counts by one each, in opposite directions. Each threshold pays
        `1/threshold_scale`; the two counts together change at most `pair_sensitivity` nodes of the tree.
        """
        if not (self.threshold_scale and self.tree_scale):
            raise InvalidParameter("scale", 0, "above 0: without noise there is no privacy to state")
        nodes = pair_sensitivity(min(self.tree_length, self.phases - 1))
        return min(2, self.phases) / Fraction(self.threshold_scale) + nodes / Fraction(self.tree_scale)


class PrivateThreshold:
    """A test of whether a count has reached `threshold` plus integer Laplace noise, drawn once.

    Formal guarantees: for counts that differ by at most 1, the answers up to and including the first
    "reached" have likelihoods within a factor `exp(1/scale)`, provided the count is tested at 0 and after
    every unit.
    """

    __slots__ = ("_level",)

    def __init__(self, threshold: int, scale: Fraction, noise: Noise) -> None:
        self._level = threshold + noise.laplace(scale)

    def reached(self, count: int) -> bool:
        return count >= self._level


class PhasedCounter:
    """Counts crossings; its public `value` moves only when a private threshold ends a phase.

    Formal guarantees: with respect to the secret positions of the crossings, `(epsilon, 0, phases)` partially
    private with `shape.epsilon`; what leaks is the crossing that ended each phase.

    >>> from countless.privacy.noise import RandomSourceNoise
    >>> from countless.randomness import SeededRandom
    >>> shape = PhasedShape(4, 10, Fraction(1), 3, Fraction(2))
    >>> counter = PhasedCounter(shape, RandomSourceNoise(SeededRandom(5)))
    >>> [counter.value for _ in range(30) if counter.crossing()]
    [9, 16, 27]
    """

    __slots__ = ("_count", "_noise", "_threshold", "_tree", "ended", "released", "shape")

    def __init__(self, shape: PhasedShape, noise: Noise) -> None:
        self.shape = shape
        self.ended = 0
        self.released: list[int] = []
        self._noise = noise
        self._tree = BinaryMechanism.with_scale(shape.tree_length, shape.tree_scale, noise)
        self._begin_phase()
        self._end_phases()

    @property
    def value(self) -> int:
        """The noisy number of crossings in all finished phases: the only public number."""
        return self.released[-1] if self.released else 0

    @property
    def finished(self) -> bool:
        """True if all phases have ended: the round is over, and `crossing` raises."""
        return self.ended >= self.shape.phases

    def crossing(self) -> bool:
        """Count one crossing; whether it ended a phase."""
        if self.finished:
            message = "every phase of this counter has ended: it counts no more crossings"
            raise InvalidParameter("phases", self.ended, message=message)
        self._count += 1
        return self._end_phases()

    def _begin_phase(self) -> None:
        self._count = 0
        self._threshold = PrivateThreshold(self.shape.threshold, self.shape.threshold_scale, self._noise)

    def _end_phases(self) -> bool:
        """End the phase if its threshold is reached, and at once every next one that starts at or below 0."""
        moved = False
        while self._end_one():
            moved = True
        return moved

    def _end_one(self) -> bool:
        if self.finished or not self._threshold.reached(self._count):
            return False
        self.ended += 1
        if not self.finished:  # the last phase ends the round: an exact total follows instead
            self.released.append(self._tree.add(self._count))
            self._begin_phase()
        return True
