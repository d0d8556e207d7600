"""The tight posterior lemma by grid, by enumeration, and its theorems by hand."""

from math import exp, log, sqrt, tanh

import pytest

from countless.errors import InvalidParameter
from countless.privacy.guarantee import LeakMap, PartialDPGuarantee
from countless.privacy.pure import (
    posterior,
    posterior_shift,
    posterior_tight,
    transfer_exponential,
    transfer_tight,
)
from countless.privacy.theorems import Accuracy, Sample, transfer_pure

LEAKY = PartialDPGuarantee(0.4, 0.0, 30, LeakMap("leaks", frozenset))


@pytest.mark.parametrize("epsilon", [0.01, 0.4, 1.0, 5.0])
def test_posterior_shift_bounds_every_probability(epsilon: float) -> None:
    moves = [abs(posterior(p / 2000, sign * epsilon) - p / 2000) for p in range(2001) for sign in (-1, 1)]
    assert max(moves) <= posterior_shift(epsilon) + 1e-15
    assert max(moves) == pytest.approx(posterior_shift(epsilon), rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.01, 0.4, 3.0])
def test_posterior_shift_is_attained(epsilon: float) -> None:
    prior = 1 / (1 + exp(epsilon / 2))
    assert posterior(prior, epsilon) - prior == pytest.approx(tanh(epsilon / 4), rel=1e-12)


def test_posterior_shift_is_a_quarter_of_the_papers() -> None:
    assert posterior_shift(1e-3) == pytest.approx((exp(1e-3) - 1) / 4, rel=1e-3)
    assert posterior_shift(100.0) == 1.0


def test_posterior_means_of_randomised_response() -> None:
    """A uniform bit that answers truly with odds e^epsilon: its posterior obeys the lemma."""
    epsilon = 0.8
    keep = exp(epsilon) / (1 + exp(epsilon))
    assert keep == pytest.approx(posterior(0.5, epsilon))
    assert keep - 0.5 <= posterior_tight(PartialDPGuarantee(epsilon), Sample(3)).error


def test_posterior_tight_by_hand() -> None:
    bound = posterior_tight(LEAKY, Sample(1000, 100))
    assert bound.error == pytest.approx((70 * tanh(0.1) + 30) / 1000)
    assert bound.failure == 0.0
    assert posterior_tight(LEAKY, Sample(1000, 20)).error == pytest.approx(20 / 1000)


def test_transfer_tight_by_hand() -> None:
    bound = transfer_tight(LEAKY, Sample(1000, 100), Accuracy(0.02, 0.01), 0.5)
    assert bound.error == pytest.approx(0.02 + (70 * tanh(0.1) + 30) / 1000 + sqrt(100 * log(2) / 2) / 1000)
    assert bound.failure == pytest.approx(0.02)


def test_tight_bounds_are_below_the_papers() -> None:
    sample, accuracy = Sample(10_000, 500), Accuracy(0.02, 0.01)
    ours = transfer_tight(LEAKY, sample, accuracy, 0.01)
    paper = transfer_pure(LEAKY, sample, accuracy, 0.01)
    assert ours.error < paper.error
    assert ours.failure < paper.failure


def test_transfer_exponential_by_hand() -> None:
    bound = transfer_exponential(LEAKY, Sample(1000, 100), 50.0, 0.3, 1e-3)
    assert bound.error == pytest.approx((0.3 + log(1000)) / 50 + (70 * tanh(0.1) + 30) / 1000)
    assert bound.failure == 1e-3


def test_pure_theorems_refuse_invalid_arguments() -> None:
    with pytest.raises(InvalidParameter, match="delta"):
        posterior_tight(PartialDPGuarantee(0.1, 1e-9), Sample(10))
    with pytest.raises(InvalidParameter, match="eta"):
        transfer_tight(LEAKY, Sample(10), Accuracy(0.1, 0.1), 1.0)
    with pytest.raises(InvalidParameter, match="s = "):
        transfer_exponential(LEAKY, Sample(10), 0.0, 0.3, 1e-3)
    with pytest.raises(InvalidParameter, match="epsilon"):
        posterior_shift(-1.0)
    with pytest.raises(InvalidParameter, match="prior"):
        posterior(1.5, 0.1)
