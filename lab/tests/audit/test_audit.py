"""The audits: the correct mechanism passes, its epsilon is attained, and every negative control is rejected.

Exact audits have no false alarms. With a fresh seed the empirical audit rejects a true claim with probability at most
1e-3; the seeds are pinned.
"""

from dataclasses import replace
from fractions import Fraction
from math import tanh

import pytest

from countless.errors import InvalidParameter, UnknownName
from countless.planning.partial_dp.planner import plan_partial_dp
from countless.privacy.noise import Noise, RandomSourceNoise
from countless.privacy.thresholds import PhasedCounter, PhasedShape
from countless.randomness import SeededRandom
from countless_lab.audit.defects import DEFECTS, UNSEEN
from countless_lab.audit.empirical_audit import audit_empirically
from countless_lab.audit.exact_audit import TapeNoise, audit_exactly, audit_law, likelihood
from countless_lab.audit.inputs import replay
from countless_lab.audit.likelihood_audit import audit_exhaustively, audit_randomly
from countless_lab.audit.mechanisms import CORRECT, MECHANISMS, Mechanism, correct, get_mechanism, rarely_noiseless
from countless_lab.audit.run import (
    LONGER,
    SHORT,
    SHORT_WINDOW,
    SMALL,
    TINY,
    WIDE,
    WINDOWS,
    AuditConfig,
    audit_mechanism,
    to_json,
)
from countless_lab.audit.scenarios import scenarios
from countless_lab.audit.transcripts import NoiseLaw

CONTROLS_WITH_A_LAW = [
    "noise-off",
    "one-level-too-few",
    "wrong-threshold-scale",
    "forgets-a-leak",
    "leaks-the-next-block",
    "kappa-too-small",
    "no-start-test",
]
# For black-box audits: the transcripts for each scenario, and the plays, that reject the control on which shapes.
BLACK_BOX_CONTROLS = {
    "noise-off": (TINY, 2, TINY, 300),
    "one-level-too-few": (TINY, 2, TINY, 600),
    "one-noise-for-all": (TINY, 4, TINY, 600),
    "wrong-threshold-scale": (TINY, 6, TINY, 10_000),
    "forgets-a-leak": (TINY, 4, TINY, 4000),
    "leaks-the-next-block": (TINY, 4, TINY, 4000),
    "kappa-too-small": (TINY, 2, TINY, 100),
    "quiet-tree": (LONGER, 2, WIDE, 400),
    "quiet-thresholds": (LONGER, 4, WIDE, 600),
    "exact-after-twelve": (LONGER, 2, WIDE, 600),
}
ONLY_THE_CODE = ["quiet-tree", "quiet-thresholds", "exact-after-twelve"]  # their stated law is the correct one
LARGER_SIZES = ["quiet-late-phases", "narrow-noise"]  # so is theirs; the first one is right in a small round
TAPES = ["stated law", "noise tapes"]
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
@pytest.mark.parametrize(("shape", "tapes"), [(TINY, 4), pytest.param(LONGER, 1, marks=pytest.mark.soak)])
def test_exact_audit_passes_the_correct_mechanism(shape: PhasedShape, tapes: int) -> None:
    finding = audit_exactly(correct(shape), tapes, SeededRandom(1), WINDOWS[shape])
    assert not finding.violated
    assert finding.worst > 0.6 * float(shape.epsilon)  # the transcripts drawn show a good part of epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if shape is LONGER and name != "quiet-tree" else ())
        for name, (shape, _, _, _) in BLACK_BOX_CONTROLS.items()
    ],
)
def test_exact_audit_rejects_negative_control(name: str) -> None:
    shape, tapes, _, _ = BLACK_BOX_CONTROLS[name]
    assert audit_exactly(get_mechanism(name, shape), tapes, SeededRandom(1), WINDOWS[shape]).violated


@pytest.mark.slow
@pytest.mark.parametrize("name", ONLY_THE_CODE)
def test_law_audit_rejects_negative_control(name: str) -> None:
    """The likelihood audits see the stated law only, so this one must reject."""
    assert not audit_exhaustively(get_mechanism(name, SMALL), events=3).violated
    finding = audit_law(get_mechanism(name, LONGER), 2, SeededRandom(1), WINDOWS[LONGER])
    assert finding.violated
    assert "by the law" in finding.witness


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape"),
    [("right", TINY), ("wrong-threshold-scale", TINY), ("no-start-test", TINY), ("right", LONGER)],
)
def test_law_audit_passes_laws_that_are_true(name: str, shape: PhasedShape) -> None:
    assert not audit_law(get_mechanism(name, shape), 1, SeededRandom(1), WINDOWS[shape]).violated


def test_likelihoods_of_all_transcripts_sum_to_one() -> None:
    """Without noise on the tree, the endings are the transcript: at most one for each threshold noise."""
    shape = PhasedShape(2, 2, Fraction(1), 1, Fraction(0))
    mechanism, scenario = correct(TINY), scenarios(shape)[0]
    mechanism = replace(mechanism, shape=shape, build=lambda noise: PhasedCounter(shape, noise))
    seen = set()
    for first in range(-8, 12):
        for second in range(-8, 12):
            noise = TapeNoise((first, 0, second))
            seen.add(replay(mechanism.build(noise), scenario.events, scenario.thresholds(1), scenario.step, 2))
    found = [likelihood(mechanism, scenario, 1, transcript, 16) for transcript in seen]
    assert sum(each.low for each in found) == pytest.approx(1, abs=2e-3)
    assert sum(each.high for each in found) > 1 - 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "violated"), [pytest.param(0.0729, False, marks=pytest.mark.soak), (0.02, True)])
def test_exact_audit_honours_delta(delta: float, violated: bool) -> None:
    """No noise with probability 0.0728; false alarm below 1e-3, pinned seed."""
    mechanism = get_mechanism("rarely-noiseless", SHORT)
    mechanism = replace(mechanism, claim=replace(mechanism.claim, delta=delta))
    finding = audit_exactly(mechanism, 250, SeededRandom(1), SHORT_WINDOW)
    assert finding.violated is violated
    assert 0.02 < finding.delta_seen < 0.0728


@pytest.mark.soak
@pytest.mark.parametrize(("claimed", "rejected"), [(0.0729, False), (0.03, True)])
def test_all_audits_honour_delta(claimed: float, rejected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at the sizes of the command line; false alarm below 1e-2, pinned seed."""

    def make(shape: PhasedShape) -> Mechanism:
        mechanism = rarely_noiseless(shape)
        return replace(mechanism, claim=replace(mechanism.claim, delta=claimed))

    monkeypatch.setitem(MECHANISMS, "mine", make)
    findings = audit_mechanism("mine", LARGE, float(LARGE.epsilon), 50, SeededRandom(1), AuditConfig())
    assert any(finding.violated for finding in findings) is rejected


@pytest.mark.slow
def test_empirical_audit_honours_delta() -> None:
    """An event of probability 1 against 0 is within a delta of 1 - 1e-9, and the audit says so."""
    mechanism = get_mechanism("noise-off", TINY)
    assert audit_empirically(mechanism, 400, SeededRandom(1)).violated
    mechanism = replace(mechanism, claim=replace(mechanism.claim, delta=1 - 1e-9))
    assert not audit_empirically(mechanism, 400, SeededRandom(1)).violated


def test_likelihood_audits_refuse_a_delta() -> None:
    mechanism = correct(SMALL)
    mechanism = replace(mechanism, claim=replace(mechanism.claim, delta=0.1))
    with pytest.raises(InvalidParameter, match="delta"):
        audit_exhaustively(mechanism, events=3)


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
@pytest.mark.parametrize("defect", [EvenNoise, SmallerNoise])
def test_black_box_audits_reject_code_that_differs_from_its_stated_law(defect: type[PhasedCounter]) -> None:
    """The stated law is the correct one, so only running the code shows the defect."""
    audited = Mechanism("defect", correct(TINY).claim, TINY, lambda noise: defect(TINY, noise), NoiseLaw(TINY))
    assert audit_exactly(audited, 6, SeededRandom(1), 6).violated
    assert audit_law(audited, 2, SeededRandom(1), 6).violated


@pytest.mark.slow
def test_posteriors_of_the_correct_mechanism_obey_the_tight_lemma() -> None:
    """Given any transcript of the code, an unleaked place moves by at most tanh(epsilon/4)."""
    examined, shift = correct(TINY), tanh(float(TINY.epsilon) / 4)
    for scenario in scenarios(TINY):
        for seed in range(2):
            noise = RandomSourceNoise(SeededRandom(seed))
            transcript = replay(
                examined.build(noise), scenario.events, scenario.thresholds(scenario.place), 2, TINY.phases
            )
            if scenario.block not in examined.claim.leaked(transcript):
                early, late = (likelihood(examined, scenario, place, transcript, 8).low for place in (1, 2))
                assert abs(early / (early + late) - 0.5) <= shift + 1e-2  # what the window cuts off


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
@pytest.mark.parametrize(("shape", "plays"), [(TINY, 500), pytest.param(WIDE, 1000, marks=pytest.mark.soak)])
def test_empirical_audit_passes_the_correct_mechanism(shape: PhasedShape, plays: int) -> None:
    finding = audit_empirically(correct(shape), plays, SeededRandom(1))
    assert not finding.violated
    assert 0 < finding.worst < finding.claimed


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if plays > 1000 or shape is WIDE else ())
        for name, (_, _, shape, plays) in BLACK_BOX_CONTROLS.items()
    ],
)
def test_empirical_audit_rejects_negative_control(name: str) -> None:
    _, _, shape, plays = BLACK_BOX_CONTROLS[name]
    finding = audit_empirically(get_mechanism(name, shape), plays, SeededRandom(1))
    assert finding.violated
    assert finding.worst > finding.claimed


@pytest.mark.slow
@pytest.mark.soak
def test_audit_findings_never_claim_a_proof() -> None:
    config = AuditConfig(events=3, tapes=1, transcripts=1, plays=100)
    parts: list[float] = []
    findings = audit_mechanism("right", LARGE, float(LARGE.epsilon), 50, SeededRandom(1), config, parts.append)
    assert (len(parts), parts) == (len(findings), sorted(parts))
    assert parts[-1] == pytest.approx(1)
    audits = ["noise", "exhaustive", "random", *(2 * TAPES), "played", "played"]
    assert [finding.audit for finding in findings] == audits
    assert {finding.shape for finding in findings} == {
        correct(shape).size for shape in (SMALL, LARGE, TINY, LONGER, WIDE)
    }
    for finding in findings:
        assert "prove" not in (finding.verdict + finding.power + finding.witness)
        assert any(word in finding.power for word in ("seen", "true of the code", "measured"))
        assert finding.tried > 0
    assert to_json(findings)["rejected"] is False


def test_audit_findings_to_json() -> None:
    report = to_json((audit_exhaustively(correct(TINY), events=4),))
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
    config = AuditConfig(events=3, tapes=1, transcripts=1, plays=100)
    findings = audit_mechanism("one-noise-for-all", LARGE, 1.0, 50, SeededRandom(1), config)
    assert [finding.audit for finding in findings] == [*(2 * TAPES[1:]), "played", "played"]


def test_invalid_audit_requests_are_refused() -> None:
    with pytest.raises(UnknownName, match="mechanism"):
        get_mechanism("nonsense", SMALL)
    with pytest.raises(InvalidParameter, match="plays"):
        audit_empirically(correct(TINY), 10, SeededRandom(1))
    with pytest.raises(InvalidParameter, match="confidence"):
        audit_empirically(correct(TINY), 100, SeededRandom(1), 1.0)
    with pytest.raises(InvalidParameter, match="law"):
        audit_law(get_mechanism("one-noise-for-all", TINY), 1, SeededRandom(1), 8)


@pytest.mark.parametrize("field", ["events", "tapes", "transcripts", "plays", "confidence"])
def test_invalid_audit_configs_are_refused(field: str) -> None:
    with pytest.raises(InvalidParameter, match=field):
        AuditConfig(**{field: 0})


def test_every_negative_control_has_a_rejecting_audit() -> None:
    controls = {*CONTROLS_WITH_A_LAW, *BLACK_BOX_CONTROLS, *LARGER_SIZES}
    assert set(MECHANISMS) == {*CORRECT, *controls, *DEFECTS, *UNSEEN}  # test_noise_audit.py has the defects
