"""Likelihoods of transcripts, and ratios against likelihoods. `test_audit` compares the law with the code."""

from fractions import Fraction
from math import exp, inf, log

import pytest

from countless.errors import InvalidParameter
from countless.privacy.noise import RandomSourceNoise
from countless.privacy.thresholds import PhasedCounter, PhasedShape
from countless.randomness import SeededRandom
from countless_lab.audit.inputs import INPUTS, run_round
from countless_lab.audit.likelihood_audit import event_orders
from countless_lab.audit.transcripts import LikelihoodRatios, NoiseLaw, Transcript, leaked_blocks, log_at_most, log_pmf

SHAPE = PhasedShape(8, 6, Fraction(3), 7, Fraction(5, 2))


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3)])
def test_log_pmf_and_log_at_most_agree(scale: Fraction) -> None:
    assert sum(exp(log_pmf(x, scale)) for x in range(-300, 301)) == pytest.approx(1.0)
    for x in (-7, -1, 0, 1, 9):
        direct = sum(exp(log_pmf(y, scale)) for y in range(-300, x + 1))
        assert log_at_most(x, scale) == pytest.approx(log(direct), rel=1e-9)


def test_log_pmf_without_noise() -> None:
    assert log_pmf(0, Fraction(0)) == log_at_most(0, Fraction(0)) == 0.0
    assert log_pmf(1, Fraction(0)) == log_at_most(-1, Fraction(0)) == -inf


@pytest.mark.parametrize("seed", range(8))
def test_log_ratios_are_differences_of_log_likelihoods(seed: int) -> None:
    rng = SeededRandom(seed)
    counter = PhasedCounter(SHAPE, RandomSourceNoise(rng.spawn("noise")))
    source = INPUTS[seed % len(INPUTS)](7, SHAPE.phases, 5, rng.spawn("feeder"))
    transcript, thresholds = run_round(counter, source, 5, SHAPE.phases, rng.spawn("thresholds"))
    law = NoiseLaw(SHAPE)
    ratios = LikelihoodRatios(law, transcript, thresholds)
    assert ratios.log_likelihood() > -inf
    leaked = leaked_blocks(transcript)
    for block in ratios.places:
        for other in range(1, 6):
            neighbour = LikelihoodRatios(law, transcript, thresholds | {block: other})
            ratio = ratios.log_ratio(block, other)
            assert ratio == pytest.approx(ratios.log_likelihood() - neighbour.log_likelihood(), abs=1e-9)
            assert ratio <= ratios.log_ratio(block, other, worst_nodes=True) + 1e-12
            assert block in leaked or abs(ratio) <= float(SHAPE.epsilon) + 1e-9


def test_leak_map_names_the_blocks_that_ended_phases() -> None:
    transcript = Transcript(2, (0, 1, 0, 0, 1), (0, 3, 3, 4), (0, 0, 0))
    assert leaked_blocks(transcript) == {(0, 1), (0, 2)}


def test_moving_a_leaked_crossing_has_infinite_ratio() -> None:
    transcript = Transcript(2, (0, 1), (1,), (3,))
    ratios = LikelihoodRatios(NoiseLaw(SHAPE), transcript, {(0, 1): 1, (1, 1): 2})
    assert ratios.log_ratio((0, 1), 2) == inf
    assert not LikelihoodRatios(NoiseLaw(SHAPE), transcript, {(0, 1): 2, (1, 1): 2}).possible()


def test_threshold_outside_the_block_is_refused() -> None:
    ratios = LikelihoodRatios(NoiseLaw(SHAPE), Transcript(2, (0,), (), ()), {(0, 1): 1})
    with pytest.raises(InvalidParameter, match="other"):
        ratios.log_ratio((0, 1), 3)


def test_event_orders_are_set_partitions() -> None:
    assert [len(list(event_orders(n))) for n in range(1, 7)] == [1, 2, 5, 15, 52, 203]  # the Bell numbers
