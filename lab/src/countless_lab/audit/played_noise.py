"""The noise behind played rounds: what counts and releases show of it, as integers and as uniform numbers.

By the stated law each noise, put into its own distribution function, is uniform and independent of all that was drawn
before it. A threshold at or below 0 shows only that; the rest of its noise is drawn by the law.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from math import exp, log1p
from typing import Any

import numpy as np
import numpy.typing as npt

from countless.core.random_source import RandomSource
from countless.privacy.noise import RandomSourceNoise
from countless.privacy.thresholds import PhasedShape
from countless_lab.audit.inputs import CrossingCounter, Deviation, Watched
from countless_lab.audit.mechanisms import Mechanism
from countless_lab.audit.transcripts import NoiseLaw

Numbers = npt.NDArray[np.int64]
Uniforms = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Law:
    """Integer Laplace noise; of scale 0, none."""

    scale: Fraction

    @property
    def ratio(self) -> float:
        return exp(-float(1 / self.scale)) if self.scale else 0.0

    def pmf(self, x: int) -> float:
        q = self.ratio
        return (1 - q) / (1 + q) * q ** abs(x)

    def pmfs(self, values: Numbers) -> Uniforms:
        q = self.ratio
        return np.asarray((1 - q) / (1 + q) * np.power(q, np.abs(values)))

    def below(self, values: Numbers) -> Uniforms:
        """P(X <= x)."""
        q = self.ratio
        low, high = np.power(q, np.maximum(-values, 0)), np.power(q, np.maximum(values + 1, 0))
        return np.where(values < 0, low, 1 + q - high) / (1 + q)

    def residue(self, residue: int, modulus: int) -> float:
        q, r = self.ratio, residue % modulus
        both = q**r + q ** (modulus - r) if r else 1 + q**modulus
        return (1 - q) / (1 + q) * both / (1 - q**modulus)

    def residues(self, modulus: int) -> Uniforms:
        return np.array([self.residue(residue, modulus) for residue in range(modulus)])

    def twice_the_same(self) -> float:
        """The probability that two noises are equal."""
        q = self.ratio
        return (1 - q) / (1 + q) * (1 + q * q) / (1 + q) ** 2

    def at_most(self, most: int, uniform: float) -> int:
        """A noise of which only is known that it is at most this, which is not above 0."""
        return most - int(-log1p(-uniform) * float(self.scale))


@dataclass(frozen=True)
class Noises:
    """Noises of one kind: a row for each round, a column for each place in it."""

    name: str
    law: Law
    values: Numbers
    uniform: Uniforms

    @property
    def columns(self) -> int:
        return int(self.values.shape[1])

    def part(self, first: int, last: int | None = None) -> "Noises":
        some = slice(first, last)
        return Noises(self.name, self.law, self.values[:, some], self.uniform[:, some])


@dataclass(frozen=True)
class PlayedRounds:
    counts: Numbers  # the crossings of each phase
    sums: Numbers  # at each release, the exact sum
    node_sums: Numbers  # the exact sum of the node that the release completes
    total_noise: Numbers  # the release minus the exact sum
    thresholds: Noises
    releases: Noises
    random: np.random.Generator

    @property
    def rounds(self) -> int:
        return len(self.counts)

    def joined(self, more: "PlayedRounds") -> "PlayedRounds":
        def both(one: Any, other: Any) -> Any:
            if isinstance(one, Noises):
                values, uniform = both(one.values, other.values), both(one.uniform, other.uniform)
                return Noises(one.name, one.law, values, uniform)
            return np.concatenate([one, other])

        parts = {each.name: both(getattr(self, each.name), getattr(more, each.name)) for each in fields(self)[:-1]}
        return PlayedRounds(**parts, random=more.random)

    def as_uniform(self, happened: Bits, p: Uniforms | float) -> Uniforms:
        """Uniform numbers that are below p where an event of probability p, given all before, has happened."""
        drawn = self.random.random(happened.shape)
        return np.where(happened, drawn * p, p + drawn * (1 - p))


def play_rounds(mechanism: Mechanism, law: NoiseLaw, numbers: Iterable[int], rng: RandomSource) -> PlayedRounds:
    """Feed crossings until each round is over; raises Deviation if one is inconsistent."""
    shape, counts, released = mechanism.shape, [], []
    for number in numbers:
        counter = mechanism.build(RandomSourceNoise(rng.spawn("round", number)))
        ended, values = _play(counter, shape)
        counts.append(ended)
        released.append(values)
    random = np.random.default_rng(rng.spawn("uniforms", len(counts)).randbelow(1 << 63))
    return _noises(np.array(counts), np.array(released).reshape(len(counts), -1), law, random)


def _play(counter: CrossingCounter, shape: PhasedShape) -> tuple[list[int], list[int]]:
    """The crossings of each phase, and the values as they were when they were published."""
    watched = Watched(counter, shape.phases)
    counts, count = [0] * watched.ended, 0
    limit = int(shape.phases * (shape.threshold + 50 * shape.threshold_scale + 50))
    for _ in range(limit):
        if len(counts) == shape.phases:
            return counts, watched.released
        count += 1
        if watched.crossing():
            counts += [count] + [0] * (watched.ended - len(counts) - 1)
            count = 0
    raise Deviation(f"a round had not ended after {limit} crossings")


def _noises(counts: Numbers, released: Numbers, law: NoiseLaw, random: np.random.Generator) -> PlayedRounds:
    shape = law.shape
    thresholds = Law(Fraction(shape.threshold_scale))
    least = 0 if law.start_test else 1  # a phase that ends at this count shows only that the threshold was not larger
    if counts.min() < least:
        raise Deviation("a phase ended before its first crossing")
    values = counts - shape.threshold
    for place in zip(*np.nonzero(counts == least), strict=True):
        values[place] = thresholds.at_most(least - shape.threshold, random.random())
    sums = np.cumsum(counts, axis=1)[:, : released.shape[1]]
    total = released - sums
    starts = _starts(released.shape[1])
    padded = np.concatenate([np.zeros((len(total), 1), dtype=np.int64), total], axis=1)
    nodes = Law(Fraction(shape.tree_scale))
    node_noise = total - padded[:, starts]
    exact = np.concatenate([np.zeros((len(sums), 1), dtype=np.int64), sums], axis=1)
    return PlayedRounds(
        counts,
        sums,
        sums - exact[:, starts],
        total,
        Noises("thresholds", thresholds, values, _uniform(values, thresholds, random)),
        Noises("releases", nodes, node_noise, _uniform(node_noise, nodes, random)),
        random,
    )


@cache
def _starts(releases: int) -> list[int]:
    """For each release, the one whose sum it continues: that of the nodes in its digits but the last."""
    return [number - (number & -number) for number in range(1, releases + 1)]


def _uniform(values: Numbers, law: Law, random: np.random.Generator) -> Uniforms:
    low, high = law.below(values - 1), law.below(values)
    return np.asarray(low + (high - low) * random.random(values.shape))
