"""Integer Laplace noise: the two sources draw from the same law, and bad scales are refused.

Sample sizes and false alarms: 10,000 draws (3,000 from OpenDP in `make test`) for each source and scale, chi-square
against the exact law at level 1e-9 each, so below 1e-8 in all. The seeded source is pinned; OpenDP has no seed.
"""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from math import exp

import pytest
from scipy.special import chdtrc

from countless.errors import InvalidParameter, MissingExtra
from countless.privacy import noise as noise_module
from countless.privacy.noise import (
    Noise,
    OpenDPNoise,
    RandomSourceNoise,
    bernoulli_exp,
    discrete_laplace,
    noise_from,
)
from countless.randomness import SeededRandom, SystemRandom
from countless_lab.audit.transcripts import log_pmf

DRAWS = 10_000


def chi_square(draws: list[int], scale: Fraction) -> float:
    """The p-value of these draws under the exact law; cells with fewer than 20 expected draws are pooled."""
    seen = Counter(draws)
    statistic, cells, expected_rest, seen_rest = 0.0, 0, float(len(draws)), len(draws)
    for x in range(-200, 201):
        expected = len(draws) * exp(log_pmf(x, scale))
        if expected >= 20:
            statistic += (seen[x] - expected) ** 2 / expected
            cells += 1
            expected_rest -= expected
            seen_rest -= seen[x]
    statistic += (seen_rest - expected_rest) ** 2 / max(expected_rest, 1e-9)
    return float(chdtrc(cells, statistic))


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(10)])
def test_seeded_noise_has_the_exact_law(scale: Fraction) -> None:
    source = RandomSourceNoise(SeededRandom(11))
    assert chi_square([source.laplace(scale) for _ in range(DRAWS)], scale) > 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("scale", [Fraction(1), Fraction(5, 2)])
@pytest.mark.parametrize("draws", [3000, pytest.param(DRAWS, marks=pytest.mark.soak)])
def test_opendp_has_the_same_law(scale: Fraction, draws: int) -> None:
    source = OpenDPNoise()
    assert chi_square([source.laplace(scale) for _ in range(draws)], scale) > 1e-9


def test_wrong_scale_fails_the_chi_square_test() -> None:
    """The test can fail: noise of scale 2.5 does not pass for noise of scale 2.8."""
    source = RandomSourceNoise(SeededRandom(11))
    assert chi_square([source.laplace(Fraction(5, 2)) for _ in range(DRAWS)], Fraction(14, 5)) < 1e-9


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 1), (1, 2), (2, 7)])
def test_bernoulli_exp_frequency(numerator: int, denominator: int) -> None:
    """20,000 pinned flips within 6 standard deviations: a false alarm of 2e-9 before the seed was pinned."""
    rng = SeededRandom(5)
    p = exp(-numerator / denominator)
    heads = sum(bernoulli_exp(numerator, denominator, rng) for _ in range(20_000))
    assert abs(heads - 20_000 * p) <= 6 * (20_000 * p * (1 - p)) ** 0.5


@pytest.mark.parametrize("source", [RandomSourceNoise(SeededRandom(1)), OpenDPNoise()], ids=["rng", "opendp"])
def test_scale_zero_is_no_noise(source: Noise) -> None:
    assert [source.laplace(Fraction(0)) for _ in range(5)] == [0] * 5


@pytest.mark.parametrize("scale", [Fraction(-1), Fraction(2**41), 0.5, "1"])
@pytest.mark.parametrize("source", [RandomSourceNoise(SeededRandom(1)), OpenDPNoise()], ids=["rng", "opendp"])
def test_invalid_scales_are_refused(source: Noise, scale: Fraction) -> None:
    with pytest.raises(InvalidParameter, match="scale"):
        source.laplace(scale)


def test_scale_that_is_no_double_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def fake(scale: float) -> Callable[[int], int]:
        asked.append(scale)
        return lambda _: 7

    monkeypatch.setattr(noise_module, "_opendp_laplace", fake)
    source = OpenDPNoise()
    assert source.laplace(Fraction(1, 3)) == 7
    assert Fraction(asked[0]) > Fraction(1, 3)
    assert asked[0] - 1 / 3 < 1e-15
    source.laplace(Fraction(3, 4))
    assert asked[1] == 0.75


def test_seeded_noise_replays() -> None:
    first, second = SeededRandom(9), SeededRandom(9)
    assert [discrete_laplace(Fraction(7, 3), first) for _ in range(20)] == [
        discrete_laplace(Fraction(7, 3), second) for _ in range(20)
    ]


def test_noise_from_a_seeded_source_is_drawn_from_it() -> None:
    assert isinstance(noise_from(SeededRandom(1)), RandomSourceNoise)


def test_noise_without_opendp(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(noise_from(SystemRandom()), OpenDPNoise)
    monkeypatch.setattr(noise_module, "find_spec", lambda _: None)
    assert isinstance(noise_from(SystemRandom()), RandomSourceNoise)
    with pytest.raises(MissingExtra, match=r"countless\[dp\]"):
        OpenDPNoise()
