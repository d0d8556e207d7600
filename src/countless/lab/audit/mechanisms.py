"""The mechanisms to audit: the correct one, and negative controls with a deliberate defect that an audit must reject.

A mechanism claims a guarantee, can be built and run, and may state the law of its noise. A negative control claims what
the correct mechanism has; its code, its law or its leak map differs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from countless.errors import UnknownName
from countless.lab.audit.inputs import CrossingCounter
from countless.lab.audit.transcripts import PHASE_ENDINGS, Block, NoiseLaw, Transcript, leaked_blocks
from countless.privacy.binary_mechanism import tree_levels
from countless.privacy.guarantee import LeakMap, PartialDPGuarantee
from countless.privacy.noise import Noise
from countless.privacy.thresholds import PhasedCounter, PhasedShape


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism under audit: its claim, its code, and the law of its noise if it states one."""

    name: str
    claim: PartialDPGuarantee
    shape: PhasedShape
    build: Callable[[Noise], CrossingCounter]
    law: NoiseLaw | None


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


def without_latest_leak(transcript: Transcript) -> frozenset[Block]:
    return leaked_blocks(replace(transcript, endings=transcript.endings[:-1]))


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


MECHANISMS: dict[str, Callable[[PhasedShape], Mechanism]] = {
    "right": correct,
    "noise-off": noise_off,
    "one-level-too-few": one_level_too_few,
    "wrong-threshold-scale": wrong_threshold_scale,
    "forgets-a-leak": forgets_a_leak,
    "no-start-test": no_start_test,
    "one-noise-for-all": one_noise_for_all,
}


def get_mechanism(name: str, shape: PhasedShape, epsilon: float | None = None) -> Mechanism:
    """The mechanism of this name; its claim is `epsilon`, or what the correct mechanism of `shape` has."""
    if name not in MECHANISMS:
        raise UnknownName("mechanism", name, MECHANISMS)
    made = MECHANISMS[name](shape)
    return made if epsilon is None else replace(made, claim=replace(made.claim, epsilon=epsilon))
