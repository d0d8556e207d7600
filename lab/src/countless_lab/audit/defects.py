"""Seeded defects: code that states the law and claim of the correct mechanism, to measure what audits find.

Each breaks the claim, most of them without bound. `power` plays them; `UNSEEN` are some that the audits do not find.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from countless.privacy.binary_mechanism import BinaryMechanism
from countless.privacy.noise import Noise, RandomSourceNoise
from countless.privacy.thresholds import PhasedCounter, PhasedShape, PrivateThreshold
from countless.randomness import SeededRandom

NARROW = "noise-1.25-too-small"


class Sums(PhasedCounter):
    """With the exact sums, for defects: `altered` changes what is published, `node_noise` the noise behind it."""

    def __init__(self, shape: PhasedShape, noise: Noise) -> None:
        self.exact, self._drawn = [0], [0]  # for each release, and before the first
        self.counts: list[int] = []
        self.chance = SeededRandom(noise.laplace(Fraction(10**9)))  # a source of its own for each round
        super().__init__(shape, noise)

    def _end_one(self) -> bool:
        count, before = self._count, len(self.released)
        ended = super()._end_one()
        if ended:
            self.counts.append(count)
        if len(self.released) > before:
            self.exact.append(self.exact[-1] + count)
            self._drawn.append(self.released[-1])
            self.released[-1] = self.altered(self.released[-1])
        return ended

    def altered(self, value: int) -> int:
        """The value to publish in the place of the newest release."""
        number = len(self.released)
        start = number - (number & -number)
        noise = value - self._drawn[start] - self.node_sum
        return (self.released[start - 1] if start else 0) + self.node_sum + self.node_noise(noise)

    @property
    def node_sum(self) -> int:
        number = len(self.released)
        return self.exact[number] - self.exact[number - (number & -number)]

    def node_noise(self, noise: int) -> int:
        """The noise in the place of the one that was drawn for the newest node."""
        return noise


class OneExactRelease(Sums):
    """One release of each round, drawn by chance, that is the exact sum."""

    def altered(self, value: int) -> int:
        if not hasattr(self, "_chosen"):
            self._chosen = 1 + self.chance.randbelow(max(1, self.shape.phases - 1))
        return self.exact[-1] if len(self.released) == self._chosen else value


class OneExactThreshold(Sums):
    """One threshold of each round, drawn by chance, without noise."""

    def _begin_phase(self) -> None:
        super()._begin_phase()
        if not hasattr(self, "_chosen"):
            self._chosen = self.chance.randbelow(self.shape.phases)
        if self.ended == self._chosen:
            self._threshold = PrivateThreshold(self.shape.threshold, Fraction(0), self._noise)


class SignTellsParity(Sums):
    """A noise of each node whose sign says whether the count of the phase is odd."""

    def node_noise(self, noise: int) -> int:
        return -abs(noise) if self.counts[-1] % 2 else abs(noise)


class EvenFromTheFifth(Sums):
    """Even noise of every node from the fifth release on."""

    def node_noise(self, noise: int) -> int:
        return noise + noise % 2 if len(self.released) >= 5 else noise


class LastDigit(Sums):
    """Releases with the last digit of the exact sum."""

    def altered(self, value: int) -> int:
        return value - (value - self.exact[-1] + 5) % 10 + 5


class QuietAfterALongPhase(Sums):
    """No noise of the next threshold and of the release before it, after a phase that was four scales too long."""

    def _begin_phase(self) -> None:
        super()._begin_phase()
        if self.long():
            self._threshold = PrivateThreshold(self.shape.threshold, Fraction(0), self._noise)

    def node_noise(self, noise: int) -> int:
        return 0 if self.long() else noise

    def long(self) -> bool:
        return bool(self.counts) and self.counts[-1] >= self.shape.threshold + 4 * self.shape.threshold_scale


class ReplacesReleases(Sums):
    """The release before the last, replaced by its exact sum when a phase ends."""

    def altered(self, value: int) -> int:
        if len(self.released) >= 2:
            self.released[-2] = self.exact[-2]
        return value


class AlwaysMoved(PhasedCounter):
    """A crossing that always returns True."""

    def crossing(self) -> bool:
        super().crossing()
        return True


class ValueOfTheOpenPhase(PhasedCounter):
    """A public value that contains the count of the open phase."""

    @property
    def value(self) -> int:
        return super().value + (0 if self.finished else self._count)


class Clipped:
    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def laplace(self, scale: Fraction) -> int:
        return max(-int(5 * scale), min(int(5 * scale), self._noise.laplace(scale)))


def clipped(shape: PhasedShape, noise: Noise) -> PhasedCounter:
    """Noise clipped at five scales, so that the answer is never far off."""
    return PhasedCounter(shape, Clipped(noise))


def seed_of_twelve_bits(shape: PhasedShape, noise: Noise) -> PhasedCounter:
    """The noise of each round drawn from a seed of twelve bits."""
    return PhasedCounter(shape, RandomSourceNoise(SeededRandom(noise.laplace(Fraction(10**9)) % 4096)))


class Paired:
    def __init__(self, shape: PhasedShape, noise: Noise) -> None:
        self._noise, self._pairs = noise, (shape.phases + 1) // 2
        self._chance = SeededRandom(noise.laplace(Fraction(10**9)))
        self._stock: dict[Fraction, list[int]] = {}

    def laplace(self, scale: Fraction) -> int:
        stock = self._stock.setdefault(scale, [])
        if not stock:
            drawn = [self._noise.laplace(scale) for _ in range(self._pairs)]
            stock += drawn + [-each for each in drawn]
        return stock.pop(self._chance.randbelow(len(stock)))


def paired(shape: PhasedShape, noise: Noise) -> PhasedCounter:
    """Each noise of a round twice, once with each sign, in an order drawn by chance."""
    return PhasedCounter(shape, Paired(shape, noise))


class RemainderOfTheCount(Sums):
    """A noise of each node with the remainder of the count of the phase modulo 9."""

    def node_noise(self, noise: int) -> int:
        return noise - (noise - self.counts[-1] + 4) % 9 + 4


class SignTellsAHash(Sums):
    """A noise of each node whose sign is a bit of a hash of the count of the phase."""

    def node_noise(self, noise: int) -> int:
        return -abs(noise) if SeededRandom(self.counts[-1]).randbelow(2) else abs(noise)


class NoisyLeaves(BinaryMechanism):
    """Noise for every second input only: a node of two adds up what is below it, and the newest input."""

    def add(self, value: int) -> int:
        self._added += 1
        level = (self._added & -self._added).bit_length() - 1
        fresh = 0 if level else self._noise.laplace(self.scale)
        self._noisy[level] = value + sum(self._noisy[:level]) + fresh
        self._noisy[:level] = [0] * level
        return sum(self._noisy)


class MergesNoisyNodes(PhasedCounter):
    """A node that adds up the noisy ones below it, without a noise of its own."""

    def _begin_phase(self) -> None:
        if self.ended == 0:
            self._tree = NoisyLeaves.with_scale(self.shape.tree_length, self.shape.tree_scale, self._noise)
        super()._begin_phase()


class FreshForEachRelease(Sums):
    """A fresh noise for each release, not for each node."""

    def altered(self, value: int) -> int:
        return self.exact[-1] + self._noise.laplace(self.shape.tree_scale)


class SignTellsTheValueBefore(Sums):
    """A noise of each node but the first whose sign says whether the value released before is odd."""

    def node_noise(self, noise: int) -> int:
        if len(self.released) == 1:
            return noise
        return -abs(noise) if self.released[-2] % 2 else abs(noise)


class SizeTellsTheSum(Sums):
    """The smaller one of two noises for each node where the exact sum is even, otherwise the larger one."""

    def node_noise(self, noise: int) -> int:
        return sorted((noise, self._noise.laplace(self.shape.tree_scale)), key=abs)[self.exact[-1] % 2]


class OneNoiseForEqualSums(Sums):
    """The same noise for all nodes of a round with the same sum."""

    def node_noise(self, noise: int) -> int:
        if len(self.released) == 1:
            self._noises: dict[int, int] = {}
        return self._noises.setdefault(self.node_sum, noise)


def too_small(factor: Fraction) -> Callable[[PhasedShape, Noise], PhasedCounter]:
    """Scales that are all too small by this factor."""

    def build(shape: PhasedShape, noise: Noise) -> PhasedCounter:
        b1, b2 = shape.threshold_scale / factor, shape.tree_scale / factor
        return PhasedCounter(replace(shape, threshold_scale=b1, tree_scale=b2), noise)

    return build


class SignTellsAHashOfTheSum(Sums):
    """A noise of each node whose sign is a bit of a hash of the exact sum."""

    def node_noise(self, noise: int) -> int:
        return -abs(noise) if SeededRandom(self.exact[-1]).randbelow(2) else abs(noise)


class SignOfOneNode(Sums):
    """One noise of a release in each round, drawn by chance, whose sign says whether the count is odd."""

    def node_noise(self, noise: int) -> int:
        if not hasattr(self, "_chosen"):
            self._chosen = 1 + self.chance.randbelow(max(1, self.shape.phases - 1))
        if len(self.released) != self._chosen:
            return noise
        return -abs(noise) if self.counts[-1] % 2 else abs(noise)


class ThreeDependentNoises(Sums):
    """A noise of the seventh release whose sign is the product of those of the third and the fifth."""

    def node_noise(self, noise: int) -> int:
        if len(self.released) == 1:
            self._sides: list[bool] = []
        if len(self.released) == 7:
            return abs(noise) if self._sides[2] == self._sides[4] else -abs(noise)
        self._sides.append(noise > 0)
        return noise


DEFECTS: dict[str, Callable[[PhasedShape, Noise], PhasedCounter]] = {
    "one-exact-release": OneExactRelease,
    "one-exact-threshold": OneExactThreshold,
    "sign-tells-parity": SignTellsParity,
    "even-from-the-fifth": EvenFromTheFifth,
    "last-digit": LastDigit,
    "quiet-after-a-long-phase": QuietAfterALongPhase,
    "replaces-releases": ReplacesReleases,
    "always-moved": AlwaysMoved,
    "value-of-the-open-phase": ValueOfTheOpenPhase,
    "clipped-at-five-scales": clipped,
    "seed-of-twelve-bits": seed_of_twelve_bits,
    "paired-noises": paired,
    "remainder-of-the-count": RemainderOfTheCount,
    "sign-tells-a-hash": SignTellsAHash,
    "merges-noisy-nodes": MergesNoisyNodes,
    "fresh-noise-for-each-release": FreshForEachRelease,
    "sign-tells-the-value-before": SignTellsTheValueBefore,
    "size-tells-the-sum": SizeTellsTheSum,
    "one-noise-for-equal-sums": OneNoiseForEqualSums,
    NARROW: too_small(Fraction(5, 4)),
    "noise-1.1-too-small": too_small(Fraction(11, 10)),
    "noise-1.02-too-small": too_small(Fraction(51, 50)),
}
UNSEEN: dict[str, Callable[[PhasedShape, Noise], PhasedCounter]] = {
    "sign-of-one-node": SignOfOneNode,
    "three-dependent-noises": ThreeDependentNoises,
    "sign-tells-a-hash-of-the-sum": SignTellsAHashOfTheSum,
}
