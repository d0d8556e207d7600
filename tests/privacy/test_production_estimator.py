"""The production estimator is the mechanism that was audited: same noise, same endings, same values."""

from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from countless.core.estimator import Effect
from countless.core.ledger import Entry
from countless.core.messages import SiteId
from countless.planning.partial_dp.planner import PartialDPPlan, plan_partial_dp
from countless.privacy.noise import Noise, RandomSourceNoise
from countless.privacy.thresholds import PhasedCounter, PhasedShape
from countless.randomness import SeededRandom
from countless.schemes.partial_dp import NoisyPhaseEstimator
from countless_lab.audit.exact_audit import audit_exactly
from countless_lab.audit.mechanisms import Mechanism, correct
from countless_lab.audit.run import TINY

STEP = 10


@cache
def plan_of(shape: PhasedShape) -> PartialDPPlan:
    """A plan with the numbers of this shape; the rest does not matter here."""
    made = plan_partial_dp(1000, 0.01, 1e-4)
    fields: dict[str, Any] = {name: getattr(made, name) for name in PartialDPPlan.__slots__}
    fields |= {name: getattr(shape, name) for name in PhasedShape.__slots__}
    return PartialDPPlan(**(fields | {"offset": 0, "cap": 10**9}))


class Production:
    """The scheme's estimator with the interface of a phased counter, from a total of 0."""

    def __init__(self, shape: PhasedShape, noise: Noise) -> None:
        self._estimator = NoisyPhaseEstimator(plan_of(shape), STEP, noise)
        self._phases = shape.phases
        self.finished = False
        self.released: list[int] = []
        self._estimator.start([], 0)
        self._note(False)

    @property
    def value(self) -> int:
        return self._estimator.estimate // STEP if self.ended else 0

    def crossing(self, count: int = 1) -> bool:
        before = self.ended
        effect = self._estimator.on_report(Entry(SiteId(0), 0, 0), 0, count)
        self._note(effect is Effect.END_ROUND)
        return self.ended > before

    def _note(self, over: bool) -> None:
        self.ended = self._estimator.phase or 0
        self.finished = over or self.ended >= self._phases
        value = self._estimator.estimate // STEP
        missing = min(self.ended, self._phases - 1) - len(self.released)
        self.released += [value] * missing  # where several phases ended at once only the last value is public


SHAPES = [
    PhasedShape(8, 6, Fraction(1), 7, Fraction(5, 2)),
    PhasedShape(8, 2, Fraction(4), 7, Fraction(1)),  # thresholds are often below 0
    PhasedShape(32, 1, Fraction(0), 31, Fraction(0)),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(20))
def test_production_estimator_equals_phased_counter(shape: PhasedShape, seed: int) -> None:
    counter = PhasedCounter(shape, RandomSourceNoise(SeededRandom(seed)))
    production = Production(shape, RandomSourceNoise(SeededRandom(seed)))
    assert (production.ended, production.finished) == (counter.ended, counter.finished)
    while not counter.finished:
        assert production.crossing() == counter.crossing()
        assert (production.ended, production.finished) == (counter.ended, counter.finished)
        if not counter.finished:
            assert production.released[-1:] == counter.released[-1:]


@pytest.mark.parametrize("seed", range(20))
def test_batch_of_crossings_equals_single_crossings(seed: int) -> None:
    shape = SHAPES[0]
    counter = PhasedCounter(shape, RandomSourceNoise(SeededRandom(seed)))
    production = Production(shape, RandomSourceNoise(SeededRandom(seed)))
    sizes = SeededRandom(seed).spawn("sizes")
    while not production.finished:
        size = 1 + sizes.randbelow(9)
        production.crossing(size)
        for _ in range(size):
            if not counter.finished:
                counter.crossing()
        assert (production.ended, production.finished) == (counter.ended, counter.finished)
        if not counter.finished:
            assert production.released[-1:] == counter.released[-1:]


@pytest.mark.slow
def test_exact_audit_passes_the_production_estimator() -> None:
    mechanism = Mechanism("production", correct(TINY).claim, TINY, lambda noise: Production(TINY, noise), None)
    assert not audit_exactly(mechanism, 1, SeededRandom(1), 6).violated
