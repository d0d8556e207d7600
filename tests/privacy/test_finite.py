"""Finite mechanisms: exact laws, the guarantee they have, and the generic auditor against it."""

from collections.abc import Hashable
from itertools import product
from math import exp, inf, log

import pytest

from countless.errors import InvalidParameter
from countless.privacy import Adversary, LeakMap, PartialDPGuarantee, asking, audit, sampled, transcript_law, verify
from countless.privacy.finite import Choose, Data
from countless.randomness import SeededRandom

EPSILON = 0.3


def leaky(data: Data, adversary: Adversary, choose: Choose) -> Hashable:
    """The counterexample to advanced composition: as many runs as there are questions."""
    answers: tuple[str, ...] = ()
    while adversary(answers) is not None:
        same = exp(-EPSILON)
        answers += ("a",) if data[0] == 0 else (choose({"a": same, "leak": 1 - same}),)
    return answers


LEAK = LeakMap("x", lambda answers: frozenset({0} if "leak" in answers else ()))


def opened(data: Data, adversary: Adversary, choose: Choose) -> Hashable:
    """Randomised response for each question about a position; a negative question opens the record."""
    answers: tuple[int, ...] = ()
    asked = []
    while (question := adversary(answers)) is not None:
        asked.append(question)
        answers += (data[~question] if question < 0 else data[question] ^ choose({0: 0.75, 1: 0.25}),)
    return tuple(asked), answers


OPENED = LeakMap("what was opened", lambda transcript: frozenset(~q for q in transcript[0] if q < 0))


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_counterexample_to_advanced_composition_costs_n_epsilon(runs: int) -> None:
    adversary = asking(["?"] * runs)
    found = verify(leaky, (0, 1), 1, [adversary], LEAK)
    assert found.epsilon == pytest.approx(runs * EPSILON)
    assert found.kappa == 1
    assert found.meets(PartialDPGuarantee(EPSILON, 0.0, 1, LEAK).compose_n(runs))
    with_delta = verify(leaky, (0, 1), 1, [adversary], LEAK, epsilon=runs * EPSILON / 2)
    assert with_delta.delta == pytest.approx(1 - exp(-runs * EPSILON / 2))


def test_transcript_law_sums_to_one() -> None:
    law = transcript_law(opened, (0, 1, 1), asking([0, -2, 2]))
    assert sum(law.values()) == pytest.approx(1)
    assert law[(0, -2, 2), (0, 1, 1)] == pytest.approx(0.75**2)


def test_opened_records_are_kappa_and_the_others_private() -> None:
    adversaries = [asking(questions) for questions in product((0, 1, -1, -2), repeat=2)]
    found = verify(opened, (0, 1), 2, adversaries, OPENED)
    assert found.epsilon == pytest.approx(2 * log(3))  # the same record asked twice
    assert found.kappa == 2
    assert verify(opened, (0, 1), 2, adversaries).epsilon == inf  # a claim that ignores what was opened


def test_adaptive_adversaries_gain_nothing_on_a_pure_claim() -> None:
    def adaptive(answers: tuple[int, ...]) -> int | None:
        return None if len(answers) == 2 else 0 if not answers or answers[0] else 1

    assert verify(opened, (0, 1), 2, [adaptive], OPENED).epsilon <= 2 * log(3) + 1e-12


def test_delta_is_the_least_at_the_given_epsilon() -> None:
    found = verify(opened, (0, 1), 1, [asking([0])], OPENED, epsilon=0.0)
    assert found.delta == pytest.approx(0.5)  # the distance of (3/4, 1/4) and (1/4, 3/4)
    assert verify(opened, (0, 1), 1, [asking([0])], OPENED, epsilon=log(3)).delta == pytest.approx(0)


def run_audit(claim: PartialDPGuarantee, questions: list[int], plays: int = 2000) -> bool:
    """Position 0 of (0, 1) changes to 1. A true claim is rejected with probability at most 1e-3; pinned seed."""
    return audit(sampled(opened), claim, (0, 1), 0, 1, asking(questions), plays, SeededRandom(1)).violated


@pytest.mark.slow
def test_audit_passes_true_claims_and_rejects_false_ones() -> None:
    assert not run_audit(PartialDPGuarantee(log(3), 0.0, 1, OPENED), [0, -2])
    assert run_audit(PartialDPGuarantee(log(2), 0.0, 1, OPENED), [0, -2])
    assert run_audit(PartialDPGuarantee(1.5 * log(3), 0.0, 1, OPENED), [0, 0])
    assert not run_audit(PartialDPGuarantee(2 * log(3), 0.0, 1, OPENED), [0, 0])


@pytest.mark.slow
def test_audit_honours_delta_leaks_and_kappa() -> None:
    assert not run_audit(PartialDPGuarantee(0.0, 0.5), [0])
    assert run_audit(PartialDPGuarantee(0.0, 0.3), [0])
    assert run_audit(PartialDPGuarantee(3.0), [-1])  # opened, and the claim does not state it
    assert not run_audit(PartialDPGuarantee(0.0, 0.0, 1, OPENED), [-1])
    found = audit(
        sampled(opened), PartialDPGuarantee(9.0, 0.0, 1, OPENED), (0, 1), 0, 1, asking([-1, -2]), 100, SeededRandom(1)
    )
    assert found.violated
    assert "kappa is 1" in found.witness


def test_invalid_requests_are_refused() -> None:
    claim = PartialDPGuarantee(1.0)
    with pytest.raises(InvalidParameter, match="universe"):
        verify(opened, (0,), 1, [])
    with pytest.raises(InvalidParameter, match="size"):
        verify(opened, (0, 1), 0, [])
    with pytest.raises(InvalidParameter, match="plays"):
        audit(sampled(opened), claim, (0,), 0, 1, asking([]), 5, SeededRandom(1))
    with pytest.raises(InvalidParameter, match="confidence"):
        audit(sampled(opened), claim, (0,), 0, 1, asking([]), 100, SeededRandom(1), 1.0)
    with pytest.raises(InvalidParameter, match="position"):
        audit(sampled(opened), claim, (0,), 1, 1, asking([]), 100, SeededRandom(1))
