"""A statistical audit of the stated law at any size: does the noise of played rounds have that law?

The counter is fed crossings, so that each count and each release shows the noise behind it. By the stated law every
such noise, put into its own distribution function, is uniform and independent of all others. The audit counts how often
these numbers fall into intervals, how often two of one round are on the same side, and how often two rounds agree.
Each count is binomial with a known probability, so its limits are exact.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import exp, inf, sqrt
from typing import NamedTuple

from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter
from countless.privacy.noise import RandomSourceNoise
from countless.privacy.thresholds import PhasedShape
from countless_lab.audit.finding import AuditFinding, MaxRatio
from countless_lab.audit.inputs import CrossingCounter
from countless_lab.audit.mechanisms import Mechanism
from countless_lab.audit.transcripts import NoiseLaw, log_at_most
from countless_lab.confidence import quantile

_BITS = 53
BINS = 16
ALL_PAIRS = 160  # up to so many noises of a round every two are compared, beyond that only neighbours
NEIGHBOURS = 8


class Deviation(Exception):
    """A round that the stated law cannot give."""


class Statistic(NamedTuple):
    """A count that is binomial by the law."""

    name: str
    seen: int
    trials: int
    probability: float


def audit_noise(mechanism: Mechanism, rounds: int, rng: RandomSource, confidence: float = 0.999) -> AuditFinding:
    """Test whether the noise of `rounds` rounds has the stated law.

    Formal guarantees: if it has, the probability of a rejection is at most `1 - confidence`.
    """
    if mechanism.law is None:
        raise InvalidParameter("mechanism", mechanism.name, "one that states the law of its noise")
    worst, phases = MaxRatio(), mechanism.shape.phases
    try:
        uniforms = [_uniforms(mechanism, mechanism.law, rng.spawn("round", number)) for number in range(rounds)]
    except Deviation as found:
        worst.add(inf, str(found))
        return worst.finding("noise", mechanism, "rounds", "one such round is enough")
    statistics = list(_statistics(uniforms, phases))
    risk = (1 - confidence) / (2 * len(statistics))
    limits = {each: quantile(*each, risk) for each in {(trials, p) for _, _, trials, p in statistics}}
    for name, seen, trials, probability in statistics:
        low, high = limits[trials, probability]
        text = f"{name}: {seen} of {trials}, by the law about {trials * probability:.4g}"
        worst.add(0.0 if low <= seen <= high else inf, text)
    off = 10 / sqrt(rounds * phases)  # the middle half of all noises: 6.8 standard deviations of 1.44/sqrt(n) each
    power = (
        f"{rounds} rounds: a noise that is missing or the same in every round, and scales that are all off by "
        f"{off:.0%}, would have been seen; what shows in few rounds only would not"
    )
    return worst.finding("noise", mechanism, "counts", power)


def _uniforms(mechanism: Mechanism, law: NoiseLaw, rng: RandomSource) -> list[float]:
    """One number for each threshold of the round, then one for each release."""
    counts, released = _play(mechanism.build(RandomSourceNoise(rng.spawn("noise"))), mechanism.shape)
    made = rng.spawn("uniforms")

    def between(low: float, high: float) -> float:
        return low + (high - low) * made.randbelow(1 << _BITS) / (1 << _BITS)

    found = [between(1 - exp(law.open(count - 1)) if count else 0.0, 1 - exp(law.open(count))) for count in counts]
    sums = [0, *released]
    for node in range(1, len(sums)):
        start = node - (node & -node)
        noise = sums[node] - sums[start] - sum(counts[start:node])
        found.append(between(*(exp(log_at_most(x, law.shape.tree_scale)) for x in (noise - 1, noise))))
    return found


def _play(counter: CrossingCounter, shape: PhasedShape) -> tuple[list[int], list[int]]:
    """The crossings of each phase, and the values as they were when they were published."""
    counts, released, count = [0] * counter.ended, list(counter.released), 0
    limit = int(shape.phases * (shape.threshold + 50 * shape.threshold_scale + 50))
    for _ in range(limit):
        if len(released) != min(counter.ended, shape.phases - 1):
            raise Deviation(f"{len(released)} values were released by the end of phase {counter.ended}")
        if counter.finished:
            return counts, released
        counter.crossing()
        count += 1
        if counter.ended > len(counts):
            counts += [count] + [0] * (counter.ended - len(counts) - 1)
            count = 0
        released += counter.released[len(released) :]
    raise Deviation(f"a round had not ended after {limit} crossings")


def _statistics(rounds: Sequence[Sequence[float]], phases: int) -> Iterator[Statistic]:
    names = [f"threshold {phase}" for phase in range(1, phases + 1)] + [f"release {n}" for n in range(1, phases)]
    columns = list(zip(*rounds, strict=True))
    for kind, some in (("thresholds", columns[:phases]), ("releases", columns[phases:])):
        values = [value for column in some for value in column]
        if values:
            yield from _histogram(kind, values)
    # One bit for each round: on the lower side, and in the middle half.
    bits = {"side": [_bits(u < 0.5 for u in column) for column in columns]}
    bits["middle"] = [_bits(abs(u - 0.5) < 0.25 for u in column) for column in columns]
    for what, masks in bits.items():
        for name, mask in zip(names, masks, strict=True):
            yield Statistic(f"{name}, {what}", mask.bit_count(), len(rounds), 0.5)
        for i, j in _pairs(len(masks), phases):
            same = len(rounds) - (masks[i] ^ masks[j]).bit_count()
            yield Statistic(f"{names[i]} and {names[j]}, same {what}", same, len(rounds), 0.5)
    pairs = [
        int(8 * one) == int(8 * other)
        for number in range(0, len(rounds) - 1, 2)
        for one, other in zip(rounds[number], rounds[number + 1], strict=True)
    ]
    if pairs:
        yield Statistic("two rounds with the same noise, to an eighth", sum(pairs), len(pairs), 1 / 8)


def _histogram(kind: str, values: Sequence[float]) -> Iterator[Statistic]:
    yield Statistic(f"all {kind}, middle", sum(abs(u - 0.5) < 0.25 for u in values), len(values), 0.5)
    for edge in (1 / 128, 127 / 128):
        tail = sum(u < edge if edge < 0.5 else u >= edge for u in values)
        yield Statistic(f"all {kind}, tail at {edge:.3f}", tail, len(values), 1 / 128)
    for number in range(BINS):
        seen = sum(number <= BINS * u < number + 1 for u in values)
        yield Statistic(f"all {kind}, part {number + 1} of {BINS}", seen, len(values), 1 / BINS)


def _bits(flags: Iterable[bool]) -> int:
    return sum(1 << number for number, flag in enumerate(flags) if flag)


def _pairs(columns: int, phases: int) -> Iterator[tuple[int, int]]:
    if columns <= ALL_PAIRS:
        yield from combinations(range(columns), 2)
        return
    for first in range(columns):
        yield from ((first, later) for later in range(first + 1, min(columns, first + NEIGHBOURS + 1)))
    yield from ((phase, phases + phase) for phase in range(phases - 1))
