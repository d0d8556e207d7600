"""Every theorem against random finite mechanisms, whose probabilities are summed exactly.

A mechanism is a table of likelihoods of its transcripts given a sample of bits; each transcript has a leaked set and
two queries with their answers, as after an adaptive interaction. No check may fail: there is no chance in them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import exp, inf, log
from random import Random

import pytest

from countless.privacy import (
    Accuracy,
    GeneralisationBound,
    LeakMap,
    PartialDPGuarantee,
    Sample,
    posterior_linear,
    posterior_low_sensitivity,
    posterior_pure,
    posterior_tight,
    resampling,
    transfer_exponential,
    transfer_linear,
    transfer_low_sensitivity,
    transfer_pure,
    transfer_tight,
)

Query = dict[tuple[int, ...], float]  # the value on every sample
SLACKS = (0.02, 0.1, 0.4)
ETAS = (0.05, 0.3, 0.7)


@dataclass
class Case:
    samples: list[tuple[int, ...]]
    prior: dict[tuple[int, ...], float]
    likelihood: dict[tuple[int, ...], list[float]]  # of each transcript
    leaked: list[frozenset[int]]
    queries: list[list[Query]]  # two for each transcript
    answers: list[list[float]]
    sample: Sample

    @property
    def kappa(self) -> int:
        return max(map(len, self.leaked))

    @property
    def transcripts(self) -> range:
        return range(len(self.leaked))

    def probability(self, transcript: int) -> float:
        return sum(self.prior[s] * self.likelihood[s][transcript] for s in self.samples)

    def posterior(self, transcript: int) -> dict[tuple[int, ...], float]:
        total = self.probability(transcript)
        return {s: self.prior[s] * self.likelihood[s][transcript] / total for s in self.samples}

    def guarantee(self, epsilon: float | None = None) -> PartialDPGuarantee:
        """The least epsilon, or the least delta at this epsilon."""
        worst = delta = 0.0
        for s, i in product(self.samples, range(self.sample.m)):
            other = (*s[:i], 1 - s[i], *s[i + 1 :])
            allowed = [t for t in self.transcripts if i not in self.leaked[t]]
            pairs = [(self.likelihood[s][t], self.likelihood[other][t]) for t in allowed]
            worst = max([worst, *(log(p / q) for p, q in pairs)])
            if epsilon is not None:
                delta = max(delta, sum(max(0.0, p - exp(epsilon) * q) for p, q in pairs))
        leak_map = LeakMap("of the table", lambda transcript: self.leaked[transcript])
        return PartialDPGuarantee(worst if epsilon is None else epsilon, min(delta, 0.999), self.kappa, leak_map)

    def accuracy(self, error: float) -> Accuracy:
        cells = product(self.samples, self.transcripts)
        wrong = [(s, t) for s, t in cells if self.distance(t, self.at(s)) > error]
        return Accuracy(error, min(1.0, sum(self.prior[s] * self.likelihood[s][t] for s, t in wrong)))

    def check(self, found: GeneralisationBound, distances: list[float]) -> None:
        """The transcripts whose distance exceeds the bound have at most its failure probability."""
        failing = [t for t in self.transcripts if distances[t] > found.error + 1e-12]
        assert sum(map(self.probability, failing)) <= found.failure + 1e-9, found

    def at(self, s: tuple[int, ...]) -> Callable[[Query], float]:
        return lambda query: query[s]

    def under(self, law: dict[tuple[int, ...], float]) -> Callable[[Query], float]:
        return lambda query: sum(p * query[s] for s, p in law.items())

    def distance(self, transcript: int, value: Callable[[Query], float]) -> float:
        pairs = zip(self.queries[transcript], self.answers[transcript], strict=True)
        return max(abs(answer - value(query)) for query, answer in pairs)

    @property
    def to_prior(self) -> list[float]:
        return [self.distance(t, self.under(self.prior)) for t in self.transcripts]

    @property
    def to_posterior(self) -> list[float]:
        return [self.distance(t, self.under(self.posterior(t))) for t in self.transcripts]

    @property
    def shifts(self) -> list[float]:
        """Of the queries, from the prior to the posterior of each transcript."""
        before, laws = self.under(self.prior), [self.under(self.posterior(t)) for t in self.transcripts]
        return [max(abs(law(q) - before(q)) for q in self.queries[t]) for t, law in enumerate(laws)]


def case(rng: Random, linear: bool) -> Case:
    m = rng.choice((2, 3))
    active = rng.randint(1, m)
    p, spread = rng.uniform(0.1, 0.9), rng.choice((0.05, 0.3, 1.0, 3.0))
    samples = list(product((0, 1), repeat=m))
    prior = {s: p ** sum(s) * (1 - p) ** (m - sum(s)) for s in samples}
    number = rng.choice((2, 3, 4))
    likelihood = {}
    for s in samples:
        weights = [exp(spread * rng.gauss(0, 1)) for _ in range(number)]
        likelihood[s] = [weight / sum(weights) for weight in weights]
    leaked = [frozenset(rng.sample(range(m), rng.randint(0, min(1, m)))) for _ in range(number)]
    queries, answers = [], []
    for _ in range(number):
        queries.append([_query(rng, samples, rng.sample(range(m), active), linear) for _ in range(2)])
        answers.append([rng.uniform(min(q.values()), max(q.values())) for q in queries[-1]])
    return Case(samples, prior, likelihood, leaked, queries, answers, Sample(m, active))


def _query(rng: Random, samples: list[tuple[int, ...]], active: list[int], linear: bool) -> Query:
    if linear:
        parts = {i: (rng.random(), rng.random()) if rng.random() < 0.7 else (0.0, 1.0) for i in active}
        return {s: sum(parts[i][s[i]] for i in active) / len(samples[0]) for s in samples}
    table = {key: rng.uniform(-2, 2) for key in product((0, 1), repeat=len(active))}
    return {s: table[tuple(s[i] for i in active)] for s in samples}


def guarantees(each: Case) -> Iterator[PartialDPGuarantee]:
    pure = each.guarantee()
    yield pure
    for part in (0.0, 0.5, 0.9):
        yield each.guarantee(part * pure.epsilon)


@pytest.mark.parametrize("seed", range(3))
def test_linear_theorems_hold_for_random_mechanisms(seed: int) -> None:
    rng = Random(seed)  # noqa: S311
    for _ in range(40):
        each = case(rng, linear=True)
        for guarantee in guarantees(each):
            for slack in SLACKS:
                found = posterior_linear(guarantee, each.sample, slack)
                each.check(found, each.shifts)
                accuracy = each.accuracy(rng.uniform(0, 0.5))
                transfer = transfer_linear(guarantee, each.sample, accuracy, slack, rng.choice(SLACKS))
                each.check(transfer, each.to_prior)
                each.check(resampling(each.sample, accuracy, slack), each.to_posterior)


@pytest.mark.parametrize("seed", range(3))
def test_low_sensitivity_theorems_hold_for_random_mechanisms(seed: int) -> None:
    rng = Random(seed)  # noqa: S311
    for _ in range(40):
        each = case(rng, linear=False)
        tables = [query for pair in each.queries for query in pair]
        flips = [(s, (*s[:i], 1 - s[i], *s[i + 1 :])) for s in each.samples for i in range(each.sample.m)]
        sensitivity = max(abs(query[a] - query[b]) for query in tables for a, b in flips)
        query_range = max(each.distance(t, each.at(s)) for t in each.transcripts for s in each.samples)
        for guarantee in guarantees(each):
            for slack in SLACKS:
                found = posterior_low_sensitivity(guarantee, each.sample, sensitivity, slack)
                each.check(found, each.shifts)
                accuracy = each.accuracy(rng.uniform(0, 1))
                transfer = transfer_low_sensitivity(
                    guarantee, each.sample, sensitivity, accuracy, slack, rng.choice(SLACKS), max(query_range, 1e-9)
                )
                each.check(transfer, each.to_prior)


@pytest.mark.parametrize("seed", range(3))
def test_pure_theorems_hold_for_random_mechanisms(seed: int) -> None:
    rng = Random(seed)  # noqa: S311
    closest = inf
    for _ in range(120):
        each = case(rng, linear=True)
        pure, before = each.guarantee(), each.under(each.prior)
        tight = posterior_tight(pure, each.sample)
        shift = max(each.shifts)
        assert shift <= tight.error + 1e-12
        closest = min(closest, tight.error / max(shift, 1e-12))
        for eta in ETAS:
            found = posterior_pure(pure, each.sample, eta)
            for t in each.transcripts:
                law = each.posterior(t)
                for query in each.queries[t]:
                    far = sum(p for s, p in law.items() if abs(query[s] - before(query)) > found.error)
                    assert far <= eta + 1e-9
            accuracy = each.accuracy(rng.uniform(0, 0.5))
            for theorem in (transfer_pure, transfer_tight):
                each.check(theorem(pure, each.sample, accuracy, eta), each.to_prior)
            rate = rng.uniform(0.5, 20)
            moment = sum(
                each.prior[s] * each.likelihood[s][t] * exp(rate * each.distance(t, each.at(s)))
                for s, t in product(each.samples, each.transcripts)
            )
            exponential = transfer_exponential(pure, each.sample, rate, log(moment), eta)
            each.check(exponential, each.to_prior)
    assert closest < 2  # some mechanism comes close to the tight bound: the checks could have failed
