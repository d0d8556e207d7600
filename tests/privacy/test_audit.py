"""The generic auditor: where it looks for events, and that it looks both ways."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import pytest

from countless.core.random_source import RandomSource
from countless.privacy import (
    Adversary,
    BinaryMechanism,
    Mechanism,
    PartialDPGuarantee,
    RandomSourceNoise,
    asking,
    audit,
    sampled,
)
from countless.privacy.events import parts
from countless.privacy.finite import Choose
from countless.randomness import SeededRandom


def tree(scales: Sequence[int]) -> Mechanism:
    """The binary mechanism, each release with its own noise scale; 4 each are epsilon = 1 for eight inputs."""

    def run(data: tuple[int, ...], adversary: Adversary, rng: RandomSource, /) -> Hashable:
        sums = BinaryMechanism(8, 1.0, RandomSourceNoise(rng))
        released = []
        for value, scale in zip(data, scales, strict=True):
            sums.scale = Fraction(scale)
            released.append(sums.add(value))
        return tuple(released)

    return run


@pytest.mark.parametrize(
    ("scales", "plays", "violated"),
    [
        pytest.param([4] * 8, 4000, False, marks=pytest.mark.soak),
        pytest.param([2] * 8, 4000, True, marks=pytest.mark.soak),  # epsilon is 2
        ([4] * 7 + [0], 400, True),  # a transcript of eight numbers hardly comes up twice, its last number does
        pytest.param([4] * 3 + [0] + [4] * 4, 400, True, marks=pytest.mark.soak),
    ],
)
def test_audit_looks_at_parts_of_transcripts(scales: list[int], plays: int, violated: bool) -> None:
    """A false alarm has probability 1e-3; pinned seed."""
    found = audit(tree(scales), PartialDPGuarantee(1.0), (0,) * 8, 0, 1, asking([]), plays, SeededRandom(1))
    assert found.violated is violated
    assert found.epsilon_seen > 0.2


def test_audit_compares_both_ways() -> None:
    """It tells x = 1 now and then, and x = 0 never."""

    def tells(data: tuple[int, ...], adversary: Adversary, choose: Choose, /) -> Hashable:
        return choose({"nothing": 0.7, "one": 0.3}) if data[0] else "nothing"

    for data, value in (((0,), 1), ((1,), 0)):
        found = audit(sampled(tells), PartialDPGuarantee(1.0), data, 0, value, asking([]), 400, SeededRandom(1))
        assert found.violated
        assert "changed" in found.witness if value else "changed" not in found.witness


def test_parts_of_a_transcript() -> None:
    @dataclass(frozen=True)
    class Seen:
        asked: tuple[str, ...]
        answers: list[float]

    found = parts(Seen(("a",), [1, 3.5]))
    assert [found[f"part {number}"] for number in (1, 2, 3)] == ["a", 1, 3.5]
    assert found["part 3 - part 2"] == 2.5
    assert "part 2 - part 1" not in found
