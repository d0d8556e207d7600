"""Random sources: the seeded one bit by bit, the system's by its distribution."""

from hashlib import blake2b
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.errors import InvalidParameter
from countless.randomness import SeededRandom, SystemRandom, geometric_from_uniform


def chi_square(seen: list[int], law: list[float]) -> float:
    return sum((count - due) ** 2 / due for count, due in zip(seen, law, strict=True))


def histogram(draws: list[int], cells: int) -> list[int]:
    seen = [0] * cells
    for draw in draws:
        seen[draw] += 1
    return seen


def test_seeded_generator_is_splitmix64() -> None:
    """The generator below has the reference vector of SplitMix64; its first state is a hash of the seed."""
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    rng = SeededRandom(7)
    state = int.from_bytes(blake2b(b"7", digest_size=8).digest(), "little")
    assert [rng.word() for _ in range(100)] == splitmix64(state, 100)


def splitmix64(state: int, words: int) -> list[int]:
    mask, found = 2**64 - 1, []
    for _ in range(words):
        state = state + 0x9E3779B97F4A7C15 & mask
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        found.append(z ^ z >> 31)
    return found


def test_seeded_reference_vectors() -> None:
    """Every recorded run depends on these draws, so they never change."""
    rng = SeededRandom(0)
    assert [rng.word() for _ in range(3)] == [8460570970101496407, 9426006464853603352, 10725956977473993133]
    rng = SeededRandom(7).spawn("site", 3)
    assert [rng.word() for _ in range(3)] == [12333820765599990175, 12884263361240975304, 3658934684929454726]
    rng = SeededRandom(7).spawn("site", "web-1", 2)
    assert rng.randbelow(10**30) == 676182387562411372513060564763
    assert (rng.geometric(1000), rng.random()) == (660, 0.058183093346686476)


def test_draws_depend_on_the_seed_and_the_whole_path_of_labels() -> None:
    paths: list[tuple[str | int, ...]] = [(), ("a",), ("b",), ("a", "b"), ("ab",), ("a/b",), ("a", 1)]
    paths += [("1",), (1,), (11,), (1, 1)]
    words = [SeededRandom(5).spawn(*path).word() for path in paths]
    assert words == [SeededRandom(5).spawn(*path).word() for path in paths]
    assert len(set(words)) == len(paths)
    assert SeededRandom(5).spawn("a").spawn("b").word() == SeededRandom(5).spawn("a", "b").word()
    assert SeededRandom(6).word() != SeededRandom(5).word()
    assert SeededRandom(-5).word() != SeededRandom(5).word()


def test_drawing_from_a_parent_does_not_change_its_child() -> None:
    parent = SeededRandom(9)
    alone = SeededRandom(9).spawn("child").word()
    parent.word()
    child = parent.spawn("child")
    parent.word()
    assert child.word() == alone


@pytest.mark.parametrize("seed", [1.0, "1", None, True])
def test_seed_must_be_an_integer(seed: int) -> None:
    with pytest.raises(InvalidParameter, match="seed"):
        SeededRandom(seed)


@given(st.integers(0, 2**64), st.integers(1, 2**200))
def test_seeded_randbelow_is_below(seed: int, n: int) -> None:
    assert 0 <= SeededRandom(seed).randbelow(n) < n


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 2**64 - 1, 2**64, 2**70])
def test_system_randbelow_is_below(n: int) -> None:
    assert all(0 <= SystemRandom().randbelow(n) < n for _ in range(300))


@pytest.mark.parametrize("rng", [SystemRandom(), SeededRandom(1)])
def test_randbelow_needs_a_positive_range(rng: SystemRandom | SeededRandom) -> None:
    with pytest.raises(ValueError):
        rng.randbelow(0)


def test_randbelow_one_draws_nothing() -> None:
    rng = SeededRandom(1)
    assert rng.randbelow(1) == 0
    assert rng.word() == SeededRandom(1).word()


def test_randbelow_is_uniform_where_the_range_is_no_power_of_two() -> None:
    """60,000 draws below 6: chi-square, 5 degrees, P(> 55) < 2e-10 (pinned seed)."""
    rng = SeededRandom(2)
    seen = histogram([rng.randbelow(6) for _ in range(60_000)], 6)
    assert chi_square(seen, [10_000.0] * 6) < 55


@pytest.mark.slow
def test_randbelow_is_uniform_for_ranges_of_many_words() -> None:
    """60,000 draws below 3 * 2^150, by thirds and by the parity of the last bit: 5 degrees, P(> 55) < 2e-10."""
    rng, third = SeededRandom(3), 2**150
    draws = [rng.randbelow(3 * third) for _ in range(60_000)]
    assert chi_square(histogram([2 * (draw // third) + draw % 2 for draw in draws], 6), [10_000.0] * 6) < 55


def test_siblings_are_independent() -> None:
    """Pairs of first draws below 4 of 40,000 neighbouring children: 16 cells, 15 degrees, P(> 80) < 1e-10."""
    firsts = [SeededRandom(4).spawn("site", number).randbelow(4) for number in range(40_001)]
    seen = histogram([4 * left + right for left, right in pairwise(firsts)], 16)
    assert chi_square(seen, [2_500.0] * 16) < 80


def test_parent_and_child_are_independent() -> None:
    """40,000 pairs, as above: 15 degrees, P(> 80) < 1e-10."""
    pairs = []
    for seed in range(40_000):
        parent = SeededRandom(seed)
        pairs.append(4 * parent.spawn("child").randbelow(4) + parent.randbelow(4))
    assert chi_square(histogram(pairs, 16), [2_500.0] * 16) < 80


@pytest.mark.parametrize("step", [1, 2, 7])
def test_geometric_has_its_distribution(step: int) -> None:
    """40,000 gaps in 12 cells: 11 degrees, P(> 72) < 1e-10 (pinned seed)."""
    rng, size, cells = SeededRandom(8), 40_000, 12
    seen = histogram([min(rng.geometric(step), cells) - 1 for _ in range(size)], cells)
    stay = 1 - 1 / step
    law = [size * stay**g / step for g in range(cells - 1)] + [size * stay ** (cells - 1)]
    if step == 1:
        assert seen == law
    else:
        assert chi_square(seen, law) < 72


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 2**80))
def test_geometric_is_a_positive_integer(fraction: float, step: int) -> None:
    gap = geometric_from_uniform(fraction, step)
    assert isinstance(gap, int)
    assert 1 <= gap <= 37 * step + 1


def test_geometric_of_a_huge_step_is_spread_over_it() -> None:
    """10,000 gaps at step 2^100: the share below the median, 0.693 steps, is Binomial; P(off by 350) < 1e-11."""
    rng, step = SeededRandom(9), 2**100
    below = sum(rng.geometric(step) < 0.6931471805599453 * step for _ in range(10_000))
    assert abs(below - 5_000) < 350


def test_system_random_has_its_distributions() -> None:
    """Not seeded: every run has this false-alarm probability.

    20,000 draws below 10 (9 degrees, P(> 75) < 2e-12), as many fractions in 10 cells, and gaps at step 3 in 8 cells
    (7 degrees, P(> 70) < 2e-12): together below 1e-11.
    """
    rng, size = SystemRandom(), 20_000
    assert rng.spawn("anything", 1) is rng
    assert chi_square(histogram([rng.randbelow(10) for _ in range(size)], 10), [size / 10] * 10) < 75
    assert chi_square(histogram([int(10 * rng.random()) for _ in range(size)], 10), [size / 10] * 10) < 75
    gaps = histogram([min(rng.geometric(3), 8) - 1 for _ in range(size)], 8)
    law = [size * (2 / 3) ** g / 3 for g in range(7)] + [size * (2 / 3) ** 7]
    assert chi_square(gaps, law) < 70
    assert 0 <= rng.randbelow(2**300) < 2**300
