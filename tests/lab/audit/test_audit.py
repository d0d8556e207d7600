"""The audits: the right mechanism passes, its bound is attained, and every strawman is rejected.

Exact audits have no false alarms. The played one rejects a true claim with probability at most 1e-3 before
its seed was pinned; the seeds are pinned.
"""

from fractions import Fraction
from math import tanh

import pytest

from countless.errors import InvalidParameter, UnknownName
from countless.lab.audit import exact_audit as tape
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

STRAWMEN_WITH_A_LAW = [
    "noise-off",
    "one-level-too-few",
    "wrong-threshold-scale",
    "forgets-a-leak",
    "no-start-test",
]
PLAIN_STRAWMEN = [
    "noise-off",
    "one-level-too-few",
    "wrong-threshold-scale",
    "forgets-a-leak",
    "one-noise-for-all",
]
LARGE = PhasedShape(64, 40, Fraction(6), 63, Fraction(8))


@pytest.mark.slow
def test_exhaustive_the_right_mechanism_attains_its_epsilon() -> None:
    """So epsilon = 2/b1 + (2 levels - 1)/b2 is neither exceeded nor improvable."""
    finding = audit_exhaustively(correct(SMALL))
    assert not finding.violated
    assert finding.worst == pytest.approx(float(SMALL.epsilon), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRAWMEN_WITH_A_LAW)
def test_exhaustive_rejects(name: str) -> None:
    finding = audit_exhaustively(get_mechanism(name, SMALL), events=4)
    assert finding.violated
    assert finding.verdict == "rejected"
    assert finding.witness


def test_exhaustive_passes_the_right_mechanism_on_four_events() -> None:
    assert not audit_exhaustively(correct(SMALL), events=4).violated


@pytest.mark.slow
def test_tapes_pass_the_right_mechanism() -> None:
    finding = audit_exactly(correct(TINY), window=8)
    assert not finding.violated
    assert finding.worst > 0.5  # it does see most of what there is


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN_STRAWMEN)
def test_tapes_reject(name: str) -> None:
    assert audit_exactly(get_mechanism(name, TINY), window=8).violated


class EvenNoise(PhasedCounter):
    """Broken as nobody planned for: twice the noise, but always even, so that parities show."""

    def __init__(self, shape: PhasedShape, noise: Noise) -> None:
        class Doubled:
            def laplace(self, scale: Fraction) -> int:
                return 2 * noise.laplace(scale)

        super().__init__(shape, Doubled())


class SmallerNoise(PhasedCounter):
    """Broken: it forgets half of its noise after it was drawn."""

    def __init__(self, shape: PhasedShape, noise: Noise) -> None:
        class Halved:
            def laplace(self, scale: Fraction) -> int:
                return noise.laplace(scale) // 2

        super().__init__(shape, Halved())


@pytest.mark.slow
@pytest.mark.parametrize("broken", [EvenNoise, SmallerNoise])
def test_tapes_reject_code_that_lies_about_its_law(broken: type[PhasedCounter]) -> None:
    """The law it states is the right one, so only running the code can tell."""
    liar = Mechanism("liar", correct(TINY).claim, TINY, lambda noise: broken(TINY, noise), NoiseLaw(TINY))
    assert audit_exactly(liar, window=8).violated


@pytest.mark.slow
def test_posteriors_obey_the_tight_lemma() -> None:
    """Given any transcript of the code, an unleaked place moves by at most tanh(epsilon/4)."""
    examined, shift = correct(TINY), tanh(float(TINY.epsilon) / 4)
    for scenario in scenarios()[::2]:
        laws = [distribution(examined, scenario, place, 8) for place in (1, 2)]
        for transcript in set(laws[0].weights) | set(laws[1].weights):
            early, late = (law.weights.get(transcript, 0.0) for law in laws)
            if scenario.block not in examined.claim.leaked(transcript) and early + late > 10 * laws[0].missing:
                assert abs(early / (early + late) - 0.5) <= shift + 0.05  # what the window cut off, over the weight


@pytest.mark.slow
def test_random_passes_the_right_mechanism() -> None:
    finding = audit_randomly(correct(LARGE), 100, 8, 4, SeededRandom(1), blocks_each=40)
    assert not finding.violated
    assert finding.worst > 0.8 * finding.claimed  # it comes close: the audit looks at the right blocks


@pytest.mark.slow
@pytest.mark.parametrize("name", ["noise-off", "one-level-too-few", "wrong-threshold-scale", "forgets-a-leak"])
def test_random_rejects(name: str) -> None:
    assert audit_randomly(get_mechanism(name, LARGE), 100, 8, 4, SeededRandom(1), blocks_each=40).violated


@pytest.mark.slow
@pytest.mark.parametrize("calibration", ["paper", "proven"])
def test_random_at_the_size_of_a_plan(calibration: str) -> None:
    plan = plan_partial_dp(1000, 0.01, 1e-4, calibration)
    shape = PhasedShape(plan.phases, plan.threshold, plan.threshold_scale, plan.tree_length, plan.tree_scale)
    assert float(shape.epsilon) <= plan.epsilon
    finding = audit_randomly(get_mechanism("right", shape, plan.epsilon), 1000, 8, 2, SeededRandom(2))
    assert not finding.violated


@pytest.mark.slow
def test_played_does_not_reject_the_right_mechanism() -> None:
    finding = audit_empirically(correct(TINY), 1000, SeededRandom(1))
    assert not finding.violated
    assert 0 < finding.worst < finding.claimed


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN_STRAWMEN)
def test_played_rejects(name: str) -> None:
    plays = 4000 if name == "forgets-a-leak" else 1500
    finding = audit_empirically(get_mechanism(name, TINY), plays, SeededRandom(1))
    assert finding.violated
    assert finding.worst > finding.claimed


def all_findings() -> tuple[AuditFinding, ...]:
    config = AuditConfig(events=3, window=4, transcripts=1, plays=200)
    return audit_mechanism("right", LARGE, float(LARGE.epsilon), 50, SeededRandom(1), config)


@pytest.mark.slow
def test_an_audit_never_says_proved() -> None:
    findings = all_findings()
    assert [finding.audit for finding in findings] == ["exhaustive", "noise tapes", "random", "played"]
    for finding in findings:
        assert "prove" not in (finding.verdict + finding.power + finding.witness)
        assert "seen" in finding.power
        assert finding.tried > 0


@pytest.mark.slow
def test_findings_in_json() -> None:
    report = to_json(all_findings())
    assert report["rejected"] is False
    assert {"claimed_epsilon", "worst_seen", "tried", "power"} <= set(report["findings"][0])
    unbounded = to_json((audit_exhaustively(get_mechanism("noise-off", SMALL), events=4),))
    assert unbounded["rejected"] is True
    assert unbounded["findings"][0]["worst_seen"] is None


def test_a_subject_without_a_law_is_played_only() -> None:
    lawless = get_mechanism("one-noise-for-all", SMALL)
    with pytest.raises(InvalidParameter, match="law"):
        audit_exhaustively(lawless, events=3)
    with pytest.raises(InvalidParameter, match="law"):
        audit_randomly(lawless, 10, 4, 1, SeededRandom(1))
    config = AuditConfig(events=3, window=4, transcripts=1, plays=200)
    findings = audit_mechanism("one-noise-for-all", LARGE, 1.0, 50, SeededRandom(1), config)
    assert [finding.audit for finding in findings] == ["noise tapes", "played"]


def test_bad_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="mechanism"):
        get_mechanism("nonsense", SMALL)
    with pytest.raises(InvalidParameter, match="plays"):
        audit_empirically(correct(TINY), 10, SeededRandom(1))
    with pytest.raises(InvalidParameter, match="confidence"):
        audit_empirically(correct(TINY), 100, SeededRandom(1), 1.0)
    monkeypatch.setattr(tape, "MAX_TAPES", 1000)
    with pytest.raises(InvalidParameter, match="window"):
        distribution(correct(SMALL), scenarios()[0], 1, 40)


@pytest.mark.parametrize("field", ["events", "window", "transcripts", "plays", "confidence"])
def test_bad_efforts(field: str) -> None:
    with pytest.raises(InvalidParameter, match=field):
        AuditConfig(**{field: 0})


def test_every_listed_strawman_is_rejected_somewhere() -> None:
    assert set(MECHANISMS) == {"right", *STRAWMEN_WITH_A_LAW, *PLAIN_STRAWMEN}
