"""The audit of the noise at any size: defects of code whose stated law is the correct one.

With a fresh seed a true law is rejected with probability at most 1e-3; the seeds are pinned.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import exp
from pathlib import Path

import numpy as np
import pytest

from countless.errors import InvalidParameter
from countless.planning.partial_dp.planner import plan_partial_dp
from countless.privacy.noise import Noise, RandomSourceNoise
from countless.privacy.thresholds import PhasedCounter, PhasedShape, PrivateThreshold
from countless.randomness import SeededRandom
from countless_lab.audit.defects import DEFECTS, UNSEEN, Sums
from countless_lab.audit.empirical_audit import audit_empirically
from countless_lab.audit.exact_audit import likelihood
from countless_lab.audit.inputs import CrossingCounter, Deviation, replay
from countless_lab.audit.mechanisms import Mechanism, correct, get_mechanism
from countless_lab.audit.noise_audit import _pairs, audit_noise
from countless_lab.audit.played_noise import Law, play_rounds
from countless_lab.audit.run import TINY, WIDE, AuditConfig
from countless_lab.audit.scenarios import scenarios
from countless_lab.audit.transcripts import NoiseLaw, log_at_most, log_pmf

SHAPE = PhasedShape(16, 12, Fraction(2), 15, Fraction(3))
LOW = PhasedShape(8, 1, Fraction(3), 7, Fraction(3))  # most thresholds are below 0: phases end at their start


def audited(build: Callable[[PhasedShape, Noise], CrossingCounter], shape: PhasedShape = SHAPE) -> Mechanism:
    return Mechanism("defect", correct(shape).claim, shape, lambda noise: build(shape, noise), NoiseLaw(shape))


class Altered:
    """Noise that a defect has changed: `laplace` is given the scale, the draw, and all draws of this scale so far."""

    def __init__(self, noise: Noise, change: Callable[[Fraction, int, list[int]], int]) -> None:
        self._noise, self._change, self._drawn = noise, change, dict[Fraction, list[int]]()

    def laplace(self, scale: Fraction) -> int:
        before = self._drawn.setdefault(scale, [])
        before.append(self._change(scale, self._noise.laplace(scale), before))
        return before[-1]


def with_noise(change: Callable[[Fraction, int, list[int]], int]) -> Mechanism:
    return audited(lambda shape, noise: PhasedCounter(shape, Altered(noise, change)))


def clipped(scale: Fraction, drawn: int, before: list[int]) -> int:
    return max(-int(2 * scale), min(int(2 * scale), drawn))


def opposite(scale: Fraction, drawn: int, before: list[int]) -> int:
    """The noise of the seventh release is that of the second, with the other sign."""
    return -before[1] if scale == SHAPE.tree_scale and len(before) == 6 else drawn


def repeated(scale: Fraction, drawn: int, before: list[int]) -> int:
    return before[0] if before and scale == SHAPE.tree_scale else drawn


class OneThreshold(PhasedCounter):
    def _begin_phase(self) -> None:
        super()._begin_phase()
        if self.ended == 11:
            self._threshold = PrivateThreshold(self.shape.threshold, Fraction(0), self._noise)


class OddCounts(PhasedCounter):
    """The noise depends on the data: half of it where the count of a phase is odd."""

    def _end_one(self) -> bool:
        self._tree.scale = self.shape.tree_scale / (1 + self._count % 2)
        return super()._end_one()


class NotRedrawn(PhasedCounter):
    """A threshold that was below its mean is used for the next phase, too."""

    def _begin_phase(self) -> None:
        if self.ended and self._count < self.shape.threshold:
            self._count = 0
        else:
            super()._begin_phase()


class TellsTheParity(PhasedCounter):
    """One value more is released where the count of a phase is odd."""

    def _end_one(self) -> bool:
        odd = self._count % 2
        ended = super()._end_one()
        if ended and odd and self.released:
            self.released.append(self.released[-1])
        return ended


def same_seed(shape: PhasedShape, noise: Noise) -> CrossingCounter:
    return PhasedCounter(shape, RandomSourceNoise(SeededRandom(7)))


OTHERS = {
    "clipped": with_noise(clipped),
    "opposite": with_noise(opposite),
    "repeated": with_noise(repeated),
    "one threshold": audited(OneThreshold),
    "odd counts": audited(OddCounts),
    "not redrawn": audited(NotRedrawn),
    "parity": audited(TellsTheParity),
    "same seed": audited(same_seed),
    "quiet-late-phases": get_mechanism("quiet-late-phases", SHAPE),
    "narrow-noise": get_mechanism("narrow-noise", SHAPE),
}

SMALL = ("noise-1.1-too-small", "noise-1.02-too-small")  # for few rounds
QUICK = ("opposite", "parity", "quiet-late-phases", "narrow-noise")


@pytest.mark.parametrize("shape", [SHAPE, LOW])
def test_noise_audit_passes_the_correct_mechanism(shape: PhasedShape) -> None:
    finding = audit_noise(correct(shape), 60, SeededRandom(1))
    assert not finding.violated
    assert finding.tried > 100


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.soak) for name in OTHERS]
)
def test_noise_audit_rejects_defects_of_the_code(name: str) -> None:
    finding = audit_noise(OTHERS[name], 60, SeededRandom(1))
    assert finding.violated
    assert finding.witness


@pytest.mark.parametrize("name", [name for name in DEFECTS if name not in SMALL])
def test_noise_audit_rejects_seeded_defects(name: str) -> None:
    """On small rounds, to be quick; `python -m bench audit` measures at the default size."""
    finding = audit_noise(get_mechanism(name, SHAPE), 400, SeededRandom(1))
    assert finding.violated, finding.witness


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("sign-tells-parity", "side and parity of the count of the phase"),
        ("sign-tells-the-value-before", "side and parity of the value that is public"),
        ("size-tells-the-sum", "size and parity of the sum,"),
        ("one-noise-for-equal-sums", "with the same sum"),
    ],
)
def test_noise_of_a_seeded_defect_has_the_law_but_for_what_is_meant(name: str, seen: str) -> None:
    """Otherwise its power says nothing: noise whose law is wrong by mistake is seen sooner."""
    assert seen in audit_noise(get_mechanism(name, SHAPE), 400, SeededRandom(1)).witness


def test_seeded_defect_that_changes_nothing_is_the_correct_mechanism() -> None:
    def correct(shape: PhasedShape, noise: Noise) -> PhasedCounter:
        noise.laplace(Fraction(10**9))  # as `Sums` does first
        return PhasedCounter(shape, noise)

    for shape, seed in product((SHAPE, LOW), range(20)):
        one, other = (build(shape, RandomSourceNoise(SeededRandom(seed))) for build in (Sums, correct))
        while not other.finished:
            assert one.crossing() is other.crossing()
        assert one.released == other.released


def test_power_of_every_seeded_defect_is_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "design" / "proofs" / "partial-dp.md").read_text()
    table = page.split("<!-- bench:audit-power -->")[1].split("<!-- /bench -->")[0]
    found = {
        name: int(seen) / int(runs) for name, seen, runs in re.findall(r"\| `(\S+)` .* \| (\d+) of (\d+) \|", table)
    }
    assert {*DEFECTS} <= {*found} <= {*DEFECTS, *UNSEEN}
    assert all(found[name] >= 0.99 for name in DEFECTS)


def test_noise_that_is_too_wide_to_enumerate_does_not_stop_the_noise_tapes() -> None:
    mechanism, scenario = get_mechanism("one-exact-release", TINY), scenarios(TINY)[0]
    noise = RandomSourceNoise(SeededRandom(1))
    transcript = replay(mechanism.build(noise), scenario.events, scenario.thresholds(1), scenario.step, TINY.phases)
    found = likelihood(mechanism, scenario, 1, transcript, 7)
    assert found.low < 1e-6 < found.high  # what was not tried may be this transcript


@pytest.mark.soak
@pytest.mark.parametrize("name", ["noise-1.1-too-small", *UNSEEN])
def test_noise_audit_sees_as_much_of_small_defects_as_is_said(name: str) -> None:
    plan = plan_partial_dp(1000, 0.01, 1e-4)
    found = audit_noise(get_mechanism(name, plan.shape), AuditConfig().rounds, SeededRandom(1)).violated
    assert found is (name not in UNSEEN)


class Changed(PhasedCounter):
    """Publishes something that no noise explains."""

    what = ""

    def crossing(self) -> bool:
        moved = super().crossing()
        if self.ended == 3 and moved:
            if self.what == "extra":
                self.released.append(1)
            elif self.what == "missing":
                self.released.pop()
            elif self.what == "first":
                self.released[0] += 1
            elif self.what == "ended":
                self.ended = 1
        return not moved if self.what == "moved" else moved

    @property
    def value(self) -> int:
        return super().value + (self.what == "value")


@pytest.mark.parametrize(
    ("what", "seen"),
    [
        ("extra", "were released"),
        ("missing", "has changed|were released"),
        ("first", "has changed"),
        ("ended", "have ended"),
        ("moved", "returned"),
        ("value", "public value"),
    ],
)
def test_one_round_shows_values_that_contradict_each_other(what: str, seen: str) -> None:
    made = type("Made", (Changed,), {"what": what})
    finding = audit_noise(audited(made), 8, SeededRandom(1))
    assert finding.violated
    assert re.search(seen, finding.witness)
    with pytest.raises(Deviation):
        audit_empirically(audited(made, WIDE), 100, SeededRandom(1))


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3)])
def test_law_of_noise_is_that_of_transcripts(scale: Fraction) -> None:
    law, values = Law(scale), np.arange(-5, 6)
    assert np.allclose(law.below(values), [exp(log_at_most(int(x), scale)) for x in values])
    assert np.allclose(law.pmfs(values), [exp(log_pmf(int(x), scale)) for x in values])
    for modulus in (2, 10):
        direct = [sum(law.pmf(x) for x in range(-400, 400) if x % modulus == r) for r in range(modulus)]
        assert np.allclose(law.residues(modulus), direct)
    found = [law.at_most(-2, number / 1000) for number in range(1000)]
    assert max(found) == -2
    assert found.count(-2) == pytest.approx(1000 * law.pmf(-2) / float(law.below(np.array([-2]))[0]), abs=1)


def test_events_of_a_known_probability_become_uniform_numbers() -> None:
    """20,000 numbers in 10 cells: 9 degrees, P(chi-square > 75) < 2e-12 (pinned seed)."""
    random = np.random.default_rng(1)
    played = play_rounds(correct(LOW), NoiseLaw(LOW), range(2), SeededRandom(1))
    p = random.random(20_000)
    uniform = played.as_uniform(random.random(20_000) < p, p)
    seen = np.bincount((10 * uniform).astype(int), minlength=10)
    assert float(((seen - 2000) ** 2 / 2000).sum()) < 75


def test_noise_audit_takes_the_stated_law_as_it_is() -> None:
    """Wrong noise that is stated is for the other audits."""
    for name in ("noise-off", "wrong-threshold-scale", "no-start-test"):
        assert not audit_noise(get_mechanism(name, SHAPE), 40, SeededRandom(1)).violated, name
    with pytest.raises(InvalidParameter, match="law"):
        audit_noise(get_mechanism("one-noise-for-all", SHAPE), 40, SeededRandom(1))


@pytest.mark.soak
def test_noise_audit_has_few_false_alarms() -> None:
    """At a confidence of 0.9, a tenth of the true laws is rejected at most: over 30 of 100 with probability 1e-8."""
    for shape in (PhasedShape(4, 6, Fraction(2), 3, Fraction(3)), LOW):
        assert sum(audit_noise(correct(shape), 64, SeededRandom(seed), 0.9).violated for seed in range(100)) <= 30


def test_pairs_of_large_rounds_are_neighbours() -> None:
    assert len(list(_pairs(31, 16))) == 31 * 30 // 2
    pairs = set(_pairs(199, 100))
    assert {(0, 8), (3, 103), (98, 198)} <= pairs
    assert (0, 9) not in pairs
