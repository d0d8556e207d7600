"""The audits: the correct mechanism passes, its epsilon is attained, and every negative control is rejected.

Exact audits have no false alarms. With a fresh seed the empirical audit rejects a true claim with probability at most
1e-3; the seeds are pinned.
"""

from fractions import Fraction
from functools import cache
from math import tanh

import pytest

from countless.errors import InvalidParameter, UnknownName
from countless.lab.audit import exact_audit
from countless.lab.audit.empirical_audit import audit_empirically
from countless.lab.audit.exact_audit import audit_exactly, distribution, scenarios
from countless.lab.audit.likelihood_audit import AuditFinding, audit_exhaustively, audit_randomly
from countless.lab.audit.mechanisms import MECHANISMS, Mechanism, correct, get_mechanism
from countless.lab.audit.run import SMALL, TINY, AuditConfig, audit_mechanism, to_json
from countless.lab.audit.transcripts import NoiseLaw
from countless.planning.partial_dp import plan_partial_dp
from countless.privacy.noise import Noise
from countless.privacy.thresholds import PhasedCounter, PhasedShape
from countless.randomness import SeededRandom

CONTROLS_WITH_A_LAW = [
    "noise-off",
    "one-level-too-few",
    "wrong-threshold-scale",
    "forgets-a-leak",
    "no-start-test",
]
# For black-box audits: the window of the exact audit and the runs of the empirical audit that reject the control.
BLACK_BOX_CONTROLS = {
    "noise-off": (5, 300),
    "one-level-too-few": (5, 600),
    "one-noise-for-all": (5, 600),
    "wrong-threshold-scale": (5, 1500),
    "forgets-a-leak": (8, 4000),
}
LARGE = PhasedShape(64, 40, Fraction(6), 63, Fraction(8))


@pytest.mark.parametrize(("shape", "events"), [(TINY, 4), pytest.param(SMALL, 5, marks=pytest.mark.soak)])
def test_exhaustive_audit_attains_epsilon_of_the_correct_mechanism(shape: PhasedShape, events: int) -> None:
    """So epsilon = 2/b1 + (2 levels - 1)/b2 is neither exceeded nor improvable."""
    finding = audit_exhaustively(correct(shape), events)
    assert not finding.violated
    assert finding.worst == pytest.approx(float(shape.epsilon), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROLS_WITH_A_LAW)
def test_exhaustive_audit_rejects_negative_control(name: str) -> None:
    finding = audit_exhaustively(get_mechanism(name, SMALL), events=4)
    assert finding.violated
    assert finding.verdict == "rejected"
    assert finding.witness


def test_exhaustive_audit_passes_the_correct_mechanism() -> None:
    assert not audit_exhaustively(correct(SMALL), events=4).violated


@pytest.mark.slow
def test_exact_audit_passes_the_correct_mechanism() -> None:
    finding = audit_exactly(correct(TINY), window=8)
    assert not finding.violated
    assert finding.worst > 0.5  # the window shows a good part of epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if window > 5 else ())
        for name, (window, _) in BLACK_BOX_CONTROLS.items()
    ],
)
def test_exact_audit_rejects_negative_control(name: str) -> None:
    assert audit_exactly(get_mechanism(name, TINY), BLACK_BOX_CONTROLS[name][0]).violated


class EvenNoise(PhasedCounter):
    """Defect: twice the noise, but always even, so that the parity of a count shows."""

    def __init__(self, shape: PhasedShape, noise: Noise) -> None:
        class Doubled:
            def laplace(self, scale: Fraction) -> int:
                return 2 * noise.laplace(scale)

        super().__init__(shape, Doubled())


class SmallerNoise(PhasedCounter):
    """Defect: half of the noise."""

    def __init__(self, shape: PhasedShape, noise: Noise) -> None:
        class Halved:
            def laplace(self, scale: Fraction) -> int:
                return noise.laplace(scale) // 2

        super().__init__(shape, Halved())


@pytest.mark.slow
@pytest.mark.parametrize(("defect", "window"), [(EvenNoise, 5), pytest.param(SmallerNoise, 8, marks=pytest.mark.soak)])
def test_exact_audit_rejects_code_that_differs_from_its_stated_law(defect: type[PhasedCounter], window: int) -> None:
    """The stated law is the correct one, so only running the code shows the defect."""
    audited = Mechanism("defect", correct(TINY).claim, TINY, lambda noise: defect(TINY, noise), NoiseLaw(TINY))
    assert audit_exactly(audited, window).violated


@pytest.mark.slow
def test_posteriors_of_the_correct_mechanism_obey_the_tight_lemma() -> None:
    """Given any transcript of the code, an unleaked place moves by at most tanh(epsilon/4)."""
    examined, shift = correct(TINY), tanh(float(TINY.epsilon) / 4)
    for scenario in scenarios()[::2]:
        laws = [distribution(examined, scenario, place, 8) for place in (1, 2)]
        for transcript in set(laws[0].weights) | set(laws[1].weights):
            early, late = (law.weights.get(transcript, 0.0) for law in laws)
            if scenario.block not in examined.claim.leaked(transcript) and early + late > 10 * laws[0].missing:
                assert abs(early / (early + late) - 0.5) <= shift + 0.05  # what the window cut off, over the weight


@pytest.mark.slow
def test_random_audit_passes_the_correct_mechanism() -> None:
    finding = audit_randomly(correct(LARGE), 100, 8, 4, SeededRandom(1), blocks_each=40)
    assert not finding.violated
    assert finding.worst > 0.8 * finding.claimed  # close to epsilon: the audit selects the blocks that matter


@pytest.mark.slow
@pytest.mark.parametrize("name", ["noise-off", "one-level-too-few", "wrong-threshold-scale", "forgets-a-leak"])
def test_random_audit_rejects_negative_control(name: str) -> None:
    assert audit_randomly(get_mechanism(name, LARGE), 100, 8, 4, SeededRandom(1), blocks_each=40).violated


@pytest.mark.slow
@pytest.mark.parametrize("calibration", [pytest.param("paper", marks=pytest.mark.soak), "proven"])
def test_random_audit_passes_plan_sized_mechanism(calibration: str) -> None:
    plan = plan_partial_dp(1000, 0.01, 1e-4, calibration)
    shape = PhasedShape(plan.phases, plan.threshold, plan.threshold_scale, plan.tree_length, plan.tree_scale)
    assert float(shape.epsilon) <= plan.epsilon
    finding = audit_randomly(get_mechanism("right", shape, plan.epsilon), 1000, 8, 2, SeededRandom(2))
    assert not finding.violated


@pytest.mark.slow
@pytest.mark.parametrize("plays", [500, pytest.param(1000, marks=pytest.mark.soak)])
def test_empirical_audit_passes_the_correct_mechanism(plays: int) -> None:
    finding = audit_empirically(correct(TINY), plays, SeededRandom(1))
    assert not finding.violated
    assert 0 < finding.worst < finding.claimed


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if plays > 1000 else ())
        for name, (_, plays) in BLACK_BOX_CONTROLS.items()
    ],
)
def test_empirical_audit_rejects_negative_control(name: str) -> None:
    finding = audit_empirically(get_mechanism(name, TINY), BLACK_BOX_CONTROLS[name][1], SeededRandom(1))
    assert finding.violated
    assert finding.worst > finding.claimed


@cache
def all_findings() -> tuple[AuditFinding, ...]:
    config = AuditConfig(events=3, window=4, transcripts=1, plays=200)
    return audit_mechanism("right", LARGE, float(LARGE.epsilon), 50, SeededRandom(1), config)


@pytest.mark.slow
def test_audit_findings_never_claim_a_proof() -> None:
    findings = all_findings()
    assert [finding.audit for finding in findings] == ["exhaustive", "noise tapes", "random", "played"]
    for finding in findings:
        assert "prove" not in (finding.verdict + finding.power + finding.witness)
        assert "seen" in finding.power
        assert finding.tried > 0


@pytest.mark.slow
def test_audit_findings_to_json() -> None:
    report = to_json(all_findings())
    assert report["rejected"] is False
    assert {"claimed_epsilon", "worst_seen", "tried", "power"} <= set(report["findings"][0])
    unbounded = to_json((audit_exhaustively(get_mechanism("noise-off", SMALL), events=4),))
    assert unbounded["rejected"] is True
    assert unbounded["findings"][0]["worst_seen"] is None


def test_mechanism_without_a_law_gets_black_box_audits_only() -> None:
    lawless = get_mechanism("one-noise-for-all", SMALL)
    with pytest.raises(InvalidParameter, match="law"):
        audit_exhaustively(lawless, events=3)
    with pytest.raises(InvalidParameter, match="law"):
        audit_randomly(lawless, 10, 4, 1, SeededRandom(1))
    config = AuditConfig(events=3, window=4, transcripts=1, plays=200)
    findings = audit_mechanism("one-noise-for-all", LARGE, 1.0, 50, SeededRandom(1), config)
    assert [finding.audit for finding in findings] == ["noise tapes", "played"]


def test_invalid_audit_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="mechanism"):
        get_mechanism("nonsense", SMALL)
    with pytest.raises(InvalidParameter, match="plays"):
        audit_empirically(correct(TINY), 10, SeededRandom(1))
    with pytest.raises(InvalidParameter, match="confidence"):
        audit_empirically(correct(TINY), 100, SeededRandom(1), 1.0)
    monkeypatch.setattr(exact_audit, "MAX_TAPES", 1000)
    with pytest.raises(InvalidParameter, match="window"):
        distribution(correct(SMALL), scenarios()[0], 1, 40)


@pytest.mark.parametrize("field", ["events", "window", "transcripts", "plays", "confidence"])
def test_invalid_audit_configs_are_refused(field: str) -> None:
    with pytest.raises(InvalidParameter, match=field):
        AuditConfig(**{field: 0})


def test_every_negative_control_has_a_rejecting_audit() -> None:
    assert set(MECHANISMS) == {"right", *CONTROLS_WITH_A_LAW, *BLACK_BOX_CONTROLS}
