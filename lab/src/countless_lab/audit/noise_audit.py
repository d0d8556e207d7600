"""A statistical audit of the stated law at any size: does the noise of played rounds have that law?

Each number that is counted here is binomial with a known probability if the law is true, so its limits are exact. The
audit looks at the rounds in stages, so that a coarse defect costs few rounds.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import inf
from typing import NamedTuple

import numpy as np

from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter
from countless_lab.audit.finding import AuditFinding, MaxRatio
from countless_lab.audit.inputs import Deviation
from countless_lab.audit.mechanisms import Mechanism
from countless_lab.audit.played_noise import Bits, Noises, PlayedRounds, play_rounds
from countless_lab.confidence import quantile

BINS = 16
NEVER = 1e-12  # what is less likely is counted as if it had this probability
ALL_PAIRS = 160  # up to so many noises of a round every two are compared, beyond that only neighbours
NEIGHBOURS = 8
MODULI = range(2, 11)
STAGES = (16, 4, 2, 1)  # the rounds are divided by these
LEAST_ROUNDS = 8
TAIL = 1 / 128
FAR_TAILS = (1 / 512, 1 / 2048)  # on each side, where noise that is clipped never is


class Statistic(NamedTuple):
    """A count that is binomial by the law. There are many of pairs, and they share half of the risk."""

    name: str
    seen: int
    trials: int
    probability: float
    pair: bool = False


def audit_noise(mechanism: Mechanism, rounds: int, rng: RandomSource, confidence: float = 0.999) -> AuditFinding:
    """Test whether the noise of `rounds` rounds has the stated law.

    Formal guarantees: if it has, the probability of a rejection is at most `1 - confidence`.
    """
    if mechanism.law is None:
        raise InvalidParameter("mechanism", mechanism.name, "one that states the law of its noise")
    worst = MaxRatio()
    sizes = sorted({size for part in STAGES if (size := rounds // part) >= LEAST_ROUNDS} | {rounds})
    played: list[PlayedRounds] = []
    for number, size in enumerate(sizes):
        have = played[-1].rounds if played else 0
        try:
            more = play_rounds(mechanism, mechanism.law, range(have, size), rng)
        except Deviation as found:
            worst.add(inf, str(found))
            return worst.finding("noise", mechanism, "rounds", "one such round is enough")
        played = [played[-1].joined(more) if played else more]
        _compare(played[-1], (1 - confidence) / len(sizes), rng.spawn("stage", number), worst)
        if worst.above(0):
            break
    power = f"{size} of at most {rounds} rounds were played; what they show of seeded defects is measured, see below"
    return worst.finding("noise", mechanism, "counts", power)


def _compare(played: PlayedRounds, risk: float, rng: RandomSource, worst: MaxRatio) -> None:
    statistics = list(_statistics(played, rng))
    numbers = {pair: sum(each.pair is pair for each in statistics) for pair in (False, True)}
    limits: dict[tuple[int, float, bool], tuple[int, int]] = {}
    for name, seen, trials, probability, pair in statistics:
        key = trials, probability, pair
        if key not in limits:
            limits[key] = quantile(trials, probability, risk / 4 / numbers[pair])
        low, high = limits[key]
        text = f"{name}: {seen} of {trials}, by the law about {trials * probability:.4g}"
        worst.add(0.0 if low <= seen <= high else inf, text)


def _statistics(played: PlayedRounds, rng: RandomSource) -> Iterator[Statistic]:
    kinds = (played.thresholds, played.releases) if played.releases.columns else (played.thresholds,)
    for kind in kinds:
        yield from _histogram(kind)
        yield from _residues(kind)
        for what, bits, p in _bits(kind):
            yield from _columns(f"{kind.name}, {what}", bits, p)
    if played.releases.columns:
        yield from _sums(played)
        yield from _parities(played)
        yield from _equal_sums(played)
    yield from _after(played, np.random.default_rng(rng.randbelow(1 << 63)))
    yield from _pairs_of_one_round(played)
    yield from _two_rounds(played)


def _count(name: str, flags: Bits, p: float) -> Statistic:
    return Statistic(name, int(flags.sum()), flags.size, p)


def _columns(name: str, flags: Bits, p: float) -> Iterator[Statistic]:
    """For each place in the round, and for all together."""
    yield _count(f"{name}, all", flags, p)
    for column, seen in enumerate(flags.sum(axis=0), 1):
        yield Statistic(f"{name}, {column}", int(seen), len(flags), p)


def _bits(kind: Noises) -> Iterator[tuple[str, Bits, float]]:
    zero, even = kind.law.pmf(0), kind.law.residue(0, 2)
    yield "lower side", kind.uniform < 0.5, 0.5
    yield "middle half", np.abs(kind.uniform - 0.5) < 0.25, 0.5
    yield "zero", kind.values == 0, zero
    yield "even", kind.values % 2 == 0, even


def _histogram(kind: Noises) -> Iterator[Statistic]:
    yield _count(f"{kind.name}, low tail", kind.uniform < TAIL, TAIL)
    yield _count(f"{kind.name}, high tail", kind.uniform >= 1 - TAIL, TAIL)
    for tail in FAR_TAILS:
        yield _count(f"{kind.name}, tails beyond {tail:.2g}", np.abs(kind.uniform - 0.5) >= 0.5 - tail, 2 * tail)
    for part in range(BINS):
        yield _count(f"{kind.name}, part {part + 1} of {BINS}", (BINS * kind.uniform).astype(int) == part, 1 / BINS)


def _residues(kind: Noises) -> Iterator[Statistic]:
    for modulus in MODULI[1:]:
        for residue in range(modulus):
            flags = kind.values % modulus == residue
            yield _count(f"{kind.name}, {residue} modulo {modulus}", flags, kind.law.residue(residue, modulus))


def _sums(played: PlayedRounds) -> Iterator[Statistic]:
    """Releases that are the exact sum, or have its last digit: given all before, this depends on one fresh noise."""
    law = played.releases.law
    rest = played.total_noise - played.releases.values
    exact = played.as_uniform(played.total_noise == 0, law.pmfs(-rest))
    yield from _columns("releases of the exact sum", exact < law.pmf(0), law.pmf(0))
    for modulus in MODULI:
        p = law.residues(modulus)[-rest % modulus]
        same = played.as_uniform(played.total_noise % modulus == 0, p) < 1 / modulus
        yield from _columns(f"releases that are the exact sum modulo {modulus}", same, 1 / modulus)


def _parities(played: PlayedRounds) -> Iterator[Statistic]:
    """Side, size or parity of a noise, compared with the parity of a number that is known before it is drawn."""
    releases, thresholds, released = played.releases, played.thresholds, played.sums + played.total_noise
    counts = {"count of the phase": played.counts[:, :-1], "sum": played.sums, "sum of the node": played.node_sums}
    before = np.concatenate([np.zeros_like(released[:, :1]), released[:, :-1]], axis=1)
    for kind, public in ((releases, before), (thresholds.part(1), released)):
        even = played.as_uniform(kind.values % 2 == 0, kind.law.residue(0, 2)) < 0.5
        middle = np.abs(kind.uniform - 0.5) < 0.25
        for what, bit in (("side", kind.uniform < 0.5), ("size", middle), ("parity", even)):
            for number, numbers in (counts | {"value that is public": public}).items():
                same = bit ^ (numbers % 2 == 0)
                yield from _columns(f"{kind.name}, {what} and parity of the {number}", same, 0.5)


def _equal_sums(played: PlayedRounds) -> Iterator[Statistic]:
    """Noises of nodes that are those of the last node before with the same sum."""
    law, sums, values = played.releases.law, played.node_sums, played.releases.values
    before, rows = np.zeros_like(values), np.arange(len(values))
    known = np.zeros_like(values, dtype=bool)
    for column in range(1, values.shape[1]):
        equal = sums[:, column - 1 :: -1] == sums[:, column, None]
        known[:, column] = equal.any(axis=1)
        before[:, column] = values[rows, column - 1 - equal.argmax(axis=1)]
    repeated = played.as_uniform(known & (values == before), np.where(known, law.pmfs(before), 0.0))
    yield _count("noises of the last node with the same sum", repeated < law.pmf(0), law.pmf(0))


def _after(played: PlayedRounds, random: np.random.Generator) -> Iterator[Statistic]:
    """Noises after one that is in some part of its law, which a fresh noise does not depend on."""
    thresholds, releases = played.thresholds, played.releases
    last = releases.columns
    relations = [(thresholds.part(0, -1), thresholds.part(1), "the threshold before")]
    if last:
        relations.append((thresholds.part(0, -1), releases, "the threshold of the phase"))
        relations.append((releases, thresholds.part(1), "the release before"))
    if last > 1:
        relations.append((thresholds.part(0, last - 1), releases.part(1), "the threshold of the phase before"))
        relations.append((releases.part(0, -1), releases.part(1), "the release before"))
    for cause, kind, relation in relations:
        if not kind.columns:
            continue
        parts = [(f"part {n + 1} of {BINS}", n / BINS, (n + 1) / BINS) for n in range(BINS)]
        parts += [("the low tail", 0.0, TAIL), ("the high tail", 1 - TAIL, 1.0)]
        bits = list(_bits(kind))
        for part, low, high in parts:
            chosen = (cause.uniform >= low) & (cause.uniform < high)
            trials = max(1, round(chosen.size * (high - low)))  # fixed: what is missing is filled by the law itself
            for what, flags, p in bits:
                found = flags[chosen][:trials]
                seen = int(found.sum()) + int((random.random(trials - found.size) < p).sum())
                yield Statistic(f"{kind.name}, {what}, after {part} of {relation}", seen, trials, p)


def _pairs_of_one_round(played: PlayedRounds) -> Iterator[Statistic]:
    phases = played.thresholds.columns
    names = [f"threshold {n + 1}" for n in range(phases)] + [f"release {n + 1}" for n in range(played.releases.columns)]
    uniform = np.concatenate([played.thresholds.uniform, played.releases.uniform], axis=1)
    some = list(_pairs(len(names), phases))
    for what, flags in (("side", uniform < 0.5), ("middle", np.abs(uniform - 0.5) < 0.25)):
        signs = 2.0 * flags - 1.0
        agreeing = (np.rint(signs.T @ signs).astype(int) + played.rounds) // 2
        for i, j in some:
            name = f"{names[i]} and {names[j]}, same {what}"
            yield Statistic(name, int(agreeing[i, j]), played.rounds, 0.5, pair=True)


def _pairs(columns: int, phases: int) -> Iterator[tuple[int, int]]:
    if columns <= ALL_PAIRS:
        yield from combinations(range(columns), 2)
        return
    for first in range(columns):
        yield from ((first, later) for later in range(first + 1, min(columns, first + NEIGHBOURS + 1)))
    yield from ((phase, phases + phase) for phase in range(phases - 1))


def _two_rounds(played: PlayedRounds) -> Iterator[Statistic]:
    both: Sequence[Noises] = (played.thresholds, played.releases)
    eighths = np.concatenate([(8 * kind.uniform).astype(int) for kind in both], axis=1)
    for later in range(1, min(NEIGHBOURS + 1, played.rounds)):
        same = eighths[later:] == eighths[:-later]  # independent: differences of uniform numbers
        yield _count(f"same noise, to an eighth, as {later} rounds before", same, 1 / 8)
    for kind in both:
        if kind.columns and played.rounds**2 * kind.law.twice_the_same() ** kind.columns < NEVER:
            repeated = len(np.unique(kind.values, axis=0)) < played.rounds
            yield Statistic(f"{kind.name} of a round that are also those of another", int(repeated), 1, NEVER)
