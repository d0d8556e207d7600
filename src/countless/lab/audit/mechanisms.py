"""What an audit examines: the right mechanism, and strawmen broken on purpose that it must reject (SPEC 4).

A subject claims a guarantee, can be built and played, and may state the law of its noise. A claim is about
the numbers somebody *meant*; the code and the law are what they got.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from countless.errors import UnknownName
from countless.lab.audit.inputs import Playable
from countless.lab.audit.transcripts import PHASE_ENDINGS, Block, Law, Transcript, leaked_blocks
from countless.privacy.binary_mechanism import tree_levels
from countless.privacy.guarantee import LeakMap, PartialDP
from countless.privacy.noise import Noise
from countless.privacy.thresholds import PhasedCounter, PhasedShape


@dataclass(frozen=True, slots=True)
class Subject:
    """A mechanism under audit: its claim, its code, and the law of its noise if it states one."""

    name: str
    claim: PartialDP
    shape: PhasedShape
    build: Callable[[Noise], Playable]
    law: Law | None


class WithoutStartTest(PhasedCounter):
    """Broken: a threshold at or below 0 waits for the next crossing."""

    def _end_phases(self) -> bool:
        return self._count > 0 and self._end_one()


class OneNoiseForAll(PhasedCounter):
    """Broken: the noise of the first threshold is used for every phase."""

    def _begin_phase(self) -> None:
        if self.ended == 0:
            super()._begin_phase()
        self._count = 0


def forgetful(transcript: Transcript) -> frozenset[Block]:
    """Broken: a leak map that forgets the latest leak."""
    return leaked_blocks(replace(transcript, endings=transcript.endings[:-1]))


def _claim(shape: PhasedShape, leak_map: LeakMap = PHASE_ENDINGS) -> PartialDP:
    return PartialDP(float(shape.epsilon), 0.0, shape.phases, leak_map)


def _altered(name: str, meant: PhasedShape, got: PhasedShape) -> Subject:
    return Subject(name, _claim(meant), got, lambda noise: PhasedCounter(got, noise), Law(got))


def right(shape: PhasedShape) -> Subject:
    """The mechanism as it should be."""
    return _altered("right", shape, shape)


def noise_off(shape: PhasedShape) -> Subject:
    """No noise at all."""
    return _altered("noise-off", shape, replace(shape, threshold_scale=Fraction(0), tree_scale=Fraction(0)))


def one_level_too_few(shape: PhasedShape) -> Subject:
    """The tree's noise is calibrated for one level less than it has: the paper's `log L`."""
    levels = tree_levels(min(shape.tree_length, max(1, shape.phases - 1)))
    return _altered("one-level-too-few", shape, replace(shape, tree_scale=shape.tree_scale * (levels - 1) / levels))


def wrong_threshold_scale(shape: PhasedShape) -> Subject:
    """The scale upside down, as `Lap(epsilon/4)` in one of the paper's proofs."""
    return _altered("wrong-threshold-scale", shape, replace(shape, threshold_scale=1 / shape.threshold_scale))


def forgets_a_leak(shape: PhasedShape) -> Subject:
    """The right mechanism with a leak map that forgets one leak."""
    claim = _claim(shape, LeakMap("all but the latest", forgetful))
    return Subject("forgets-a-leak", claim, shape, lambda noise: PhasedCounter(shape, noise), Law(shape))


def no_start_test(shape: PhasedShape) -> Subject:
    """Thresholds are tested at crossings only."""
    build = WithoutStartTest
    return Subject("no-start-test", _claim(shape), shape, lambda noise: build(shape, noise), Law(shape, False))


def one_noise_for_all(shape: PhasedShape) -> Subject:
    """One threshold noise for all phases: it has no law of independent cells, so it can only be played."""
    return Subject("one-noise-for-all", _claim(shape), shape, lambda noise: OneNoiseForAll(shape, noise), None)


SUBJECTS: dict[str, Callable[[PhasedShape], Subject]] = {
    "right": right,
    "noise-off": noise_off,
    "one-level-too-few": one_level_too_few,
    "wrong-threshold-scale": wrong_threshold_scale,
    "forgets-a-leak": forgets_a_leak,
    "no-start-test": no_start_test,
    "one-noise-for-all": one_noise_for_all,
}


def subject(name: str, shape: PhasedShape, epsilon: float | None = None) -> Subject:
    """The subject of this name, claiming `epsilon`, or what the right mechanism of `shape` has."""
    if name not in SUBJECTS:
        raise UnknownName("mechanism", name, SUBJECTS)
    made = SUBJECTS[name](shape)
    return made if epsilon is None else replace(made, claim=replace(made.claim, epsilon=epsilon))
