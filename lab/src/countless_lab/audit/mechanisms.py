"""The mechanisms to audit: the correct one, and negative controls with a deliberate defect that an audit must reject.

A mechanism claims a guarantee, can be built and run, and may state the law of its noise. A negative control claims what
the correct mechanism has; its code, its law or its leak map differs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from countless.errors import UnknownName
from countless.privacy.binary_mechanism import tree_levels
from countless.privacy.guarantee import LeakMap, PartialDPGuarantee
from countless.privacy.noise import Noise
from countless.privacy.thresholds import PhasedCounter, PhasedShape, PrivateThreshold
from countless_lab.audit.defects import DEFECTS, UNSEEN
from countless_lab.audit.inputs import CrossingCounter
from countless_lab.audit.transcripts import PHASE_ENDINGS, Block, NoiseLaw, Transcript, leaked_blocks


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism under audit: its claim, its code, and the law of its noise if it states one."""

    name: str
    claim: PartialDPGuarantee
    shape: PhasedShape
    build: Callable[[Noise], CrossingCounter]
    law: NoiseLaw | None

    @property
    def size(self) -> str:
        shape = self.shape
        scales = f"noise {float(shape.threshold_scale):.4g} and {float(shape.tree_scale):.4g}"
        return f"{shape.phases} phases of {shape.threshold}, {scales}"


class WithoutStartTest(PhasedCounter):
    """Defect: a threshold at or below 0 is tested at the next crossing only."""

    def _end_phases(self) -> bool:
        return self._count > 0 and self._end_one()


class OneNoiseForAll(PhasedCounter):
    """Defect: the noise of the first threshold is used for every phase."""

    def _begin_phase(self) -> None:
        if self.ended == 0:
            super()._begin_phase()
        self._count = 0


class QuietTree(PhasedCounter):
    """Defect: the tree has no noise from its second release on."""

    def _end_one(self) -> bool:
        ended = super()._end_one()
        if self.released:
            self._tree.scale = Fraction(0)
        return ended


class QuietThresholds(PhasedCounter):
    """Defect: thresholds have no noise from the third phase on."""

    def _begin_phase(self) -> None:
        super()._begin_phase()
        if self.ended >= 2:
            self._threshold = PrivateThreshold(self.shape.threshold, Fraction(0), self._noise)


class QuietLatePhases(PhasedCounter):
    """Defect: from the tenth phase on neither thresholds nor the tree have noise."""

    def _begin_phase(self) -> None:
        super()._begin_phase()
        if self.ended >= 9:
            self._tree.scale = Fraction(0)
            self._threshold = PrivateThreshold(self.shape.threshold, Fraction(0), self._noise)


class NarrowNoise(PhasedCounter):
    """Defect: all scales are too small by a factor of 1.3."""

    def __init__(self, shape: PhasedShape, noise: Noise) -> None:
        b1, b2 = (scale / Fraction(13, 10) for scale in (shape.threshold_scale, shape.tree_scale))
        super().__init__(replace(shape, threshold_scale=b1, tree_scale=b2), noise)


class ExactAfter(PhasedCounter):
    """Defect: from the twelfth crossing on the exact count is released."""

    crossings = 0

    def crossing(self) -> bool:
        self.crossings += 1
        before = len(self.released)
        moved = super().crossing()
        if len(self.released) > before and self.crossings >= 12:
            self.released[-1] = self.crossings
        return moved


class RarelyNoiseless(PhasedCounter):
    """With probability 0.0728 it has no noise at all: (epsilon, 0.0728, phases) partially private, and no better."""

    def __init__(self, shape: PhasedShape, noise: Noise) -> None:
        rare = noise.laplace(Fraction(393, 1000)) > 0
        super().__init__(replace(shape, threshold_scale=Fraction(0), tree_scale=Fraction(0)) if rare else shape, noise)


def without_latest_leak(transcript: Transcript) -> frozenset[Block]:
    return leaked_blocks(replace(transcript, endings=transcript.endings[:-1]))


def next_blocks(transcript: Transcript) -> frozenset[Block]:
    """The paper's Definition 4: at the last event of a block it names the block after it."""
    found = set()
    for event in filter(None, transcript.endings):
        site = transcript.events[event - 1]
        found.add((site, transcript.events[:event].count(site) // transcript.step + 1))
    return frozenset(found)


def _claim(shape: PhasedShape, leak_map: LeakMap = PHASE_ENDINGS) -> PartialDPGuarantee:
    return PartialDPGuarantee(float(shape.epsilon), 0.0, shape.phases, leak_map)


def _altered(name: str, claimed: PhasedShape, actual: PhasedShape) -> Mechanism:
    return Mechanism(name, _claim(claimed), actual, lambda noise: PhasedCounter(actual, noise), NoiseLaw(actual))


def correct(shape: PhasedShape) -> Mechanism:
    return _altered("right", shape, shape)


def noise_off(shape: PhasedShape) -> Mechanism:
    return _altered("noise-off", shape, replace(shape, threshold_scale=Fraction(0), tree_scale=Fraction(0)))


def one_level_too_few(shape: PhasedShape) -> Mechanism:
    """The tree's noise is calibrated for one level less than it has: the paper's `log L`."""
    levels = tree_levels(min(shape.tree_length, max(1, shape.phases - 1)))
    return _altered("one-level-too-few", shape, replace(shape, tree_scale=shape.tree_scale * (levels - 1) / levels))


def wrong_threshold_scale(shape: PhasedShape) -> Mechanism:
    """The scale upside down, as `Lap(epsilon/4)` in one of the paper's proofs."""
    return _altered("wrong-threshold-scale", shape, replace(shape, threshold_scale=1 / shape.threshold_scale))


def forgets_a_leak(shape: PhasedShape) -> Mechanism:
    claim = _claim(shape, LeakMap("all but the latest", without_latest_leak))
    return Mechanism("forgets-a-leak", claim, shape, lambda noise: PhasedCounter(shape, noise), NoiseLaw(shape))


def no_start_test(shape: PhasedShape) -> Mechanism:
    build = WithoutStartTest
    return Mechanism("no-start-test", _claim(shape), shape, lambda noise: build(shape, noise), NoiseLaw(shape, False))


def one_noise_for_all(shape: PhasedShape) -> Mechanism:
    """One threshold noise for all phases: its law has no independent cells, so only black-box audits apply."""
    return Mechanism("one-noise-for-all", _claim(shape), shape, lambda noise: OneNoiseForAll(shape, noise), None)


def leaks_the_next_block(shape: PhasedShape) -> Mechanism:
    claim = _claim(shape, LeakMap("floor(N/step) + 1", next_blocks))
    return Mechanism("leaks-the-next-block", claim, shape, lambda noise: PhasedCounter(shape, noise), NoiseLaw(shape))


def kappa_too_small(shape: PhasedShape) -> Mechanism:
    return replace(correct(shape), name="kappa-too-small", claim=replace(_claim(shape), kappa=shape.phases - 1))


def _defect(name: str, code: Callable[[PhasedShape, Noise], CrossingCounter]) -> Callable[[PhasedShape], Mechanism]:
    """Claim and stated law are those of the correct mechanism; only the code differs."""

    def make(shape: PhasedShape) -> Mechanism:
        return Mechanism(name, _claim(shape), shape, lambda noise: code(shape, noise), NoiseLaw(shape))

    return make


def rarely_noiseless(shape: PhasedShape) -> Mechanism:
    """No negative control: its claim is true, with a delta."""
    claim = replace(_claim(shape), delta=0.0729)
    return Mechanism("rarely-noiseless", claim, shape, lambda noise: RarelyNoiseless(shape, noise), None)


CORRECT: dict[str, Callable[[PhasedShape], Mechanism]] = {"right": correct, "rarely-noiseless": rarely_noiseless}
MECHANISMS: dict[str, Callable[[PhasedShape], Mechanism]] = {
    **CORRECT,
    "noise-off": noise_off,
    "one-level-too-few": one_level_too_few,
    "wrong-threshold-scale": wrong_threshold_scale,
    "forgets-a-leak": forgets_a_leak,
    "leaks-the-next-block": leaks_the_next_block,
    "kappa-too-small": kappa_too_small,
    "no-start-test": no_start_test,
    "one-noise-for-all": one_noise_for_all,
    "quiet-tree": _defect("quiet-tree", QuietTree),
    "quiet-thresholds": _defect("quiet-thresholds", QuietThresholds),
    "exact-after-twelve": _defect("exact-after-twelve", ExactAfter),
    "quiet-late-phases": _defect("quiet-late-phases", QuietLatePhases),
    "narrow-noise": _defect("narrow-noise", NarrowNoise),
    **{name: _defect(name, code) for name, code in (DEFECTS | UNSEEN).items()},
}


def get_mechanism(name: str, shape: PhasedShape, epsilon: float | None = None) -> Mechanism:
    """The mechanism of this name; its claim is `epsilon`, or what the correct mechanism of `shape` has."""
    if name not in MECHANISMS:
        raise UnknownName("mechanism", name, MECHANISMS)
    made = MECHANISMS[name](shape)
    return made if epsilon is None else replace(made, claim=replace(made.claim, epsilon=epsilon))
