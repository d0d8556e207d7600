"""Finite mechanisms: their exact laws, and the epsilon, delta and kappa that they really have.

A mechanism answers an adversary about data, and returns the transcript. A finite one draws all its randomness through
`choose`, from finite laws, so that its code can be run on every outcome. The same code runs on random outcomes, for
`countless.privacy.audit`, through `sampled`.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, inf, log
from typing import Any, Protocol

from countless.core.parameters import require_integer
from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter
from countless.privacy.guarantee import NOTHING_LEAKS, LeakMap, PartialDPGuarantee

Data = tuple[Any, ...]
Adversary = Callable[[tuple[Any, ...]], Any]  # from the answers so far to the next question; None: no more
Choose = Callable[[Mapping[Any, float]], Any]  # one of the values, each with its probability
_BITS = 53


class Mechanism(Protocol):
    """Any mechanism: data, an adversary and randomness give a transcript, which can be compared and hashed."""

    def __call__(self, data: Data, adversary: Adversary, rng: RandomSource, /) -> Hashable: ...


class FiniteMechanism(Protocol):
    """A mechanism with finitely many transcripts: all its randomness comes through `choose`, from finite laws."""

    def __call__(self, data: Data, adversary: Adversary, choose: Choose, /) -> Hashable: ...


def asking(questions: Sequence[Any]) -> Adversary:
    """The adversary that asks these questions, whatever the answers are.

    For a pure claim (delta = 0) such adversaries suffice: the likelihood of a transcript depends on its questions only.
    """
    return lambda answers: questions[len(answers)] if len(answers) < len(questions) else None


def sampled(mechanism: FiniteMechanism) -> Mechanism:
    """The mechanism with random outcomes."""

    def run(data: Data, adversary: Adversary, rng: RandomSource, /) -> Hashable:
        def choose(law: Mapping[Any, float]) -> Any:
            left = rng.randbelow(1 << _BITS) / (1 << _BITS) * sum(law.values())
            for value, probability in law.items():
                left -= probability
                if left < 0:
                    return value
            return value

        return mechanism(data, adversary, choose)

    return run


class _More(Exception):
    def __init__(self, law: Mapping[Any, float]) -> None:
        self.law = law


def transcript_law(mechanism: FiniteMechanism, data: Data, adversary: Adversary) -> dict[Hashable, float]:
    """The probability of every transcript, by running the code on every sequence of choices."""
    found: dict[Hashable, float] = {}
    tapes: list[tuple[tuple[Any, ...], float]] = [((), 1.0)]
    while tapes:
        tape, weight = tapes.pop()
        try:
            transcript = mechanism(data, adversary, _chooser(iter(tape)))
        except _More as more:
            tapes.extend(((*tape, value), weight * p) for value, p in more.law.items() if p > 0)
        else:
            found[transcript] = found.get(transcript, 0.0) + weight
    return found


def _chooser(tape: Iterator[Any]) -> Choose:
    def choose(law: Mapping[Any, float]) -> Any:
        for value in tape:
            return value
        raise _More(law)

    return choose


@dataclass(frozen=True, slots=True)
class Verified:
    """The least epsilon (infinite if none will do), or the least delta at a given epsilon, and kappa."""

    epsilon: float
    delta: float
    kappa: int
    witness: str

    def meets(self, claim: PartialDPGuarantee) -> bool:
        """True if the claim is true; `verify` must have had its epsilon, unless it is pure."""
        return self.epsilon <= claim.epsilon + 1e-12 and self.delta <= claim.delta + 1e-12 and self.kappa <= claim.kappa


def verify(
    mechanism: FiniteMechanism,
    universe: Sequence[Any],
    size: int,
    adversaries: Iterable[Adversary],
    leak_map: LeakMap = NOTHING_LEAKS,
    epsilon: float | None = None,
) -> Verified:
    """The guarantee for `size` points of the universe, against these adversaries, by enumeration.

    The leak map names positions 0, 1, ..., size - 1. Without `epsilon` the claim is pure.

    >>> def response(data, adversary, choose):  # tells the truth with probability 3/4
    ...     return data[0] ^ choose({0: 0.75, 1: 0.25})
    >>> found = verify(response, (0, 1), 1, [asking([])])
    >>> round(exp(found.epsilon), 9), found.kappa
    (3.0, 0)
    """
    require_integer("size", size, 1)
    if len(universe) < 2:
        raise InvalidParameter("universe", universe, "two values or more")
    worst, delta, kappa, witness = 0.0, 0.0, 0, "no transcript differs"
    for adversary in adversaries:
        laws = {data: transcript_law(mechanism, data, adversary) for data in product(universe, repeat=size)}
        kappa = max([kappa, *(len(leak_map(transcript)) for law in laws.values() for transcript in law)])
        for data, law in laws.items():
            for position, value in product(range(size), universe):
                other = laws[(*data[:position], value, *data[position + 1 :])]
                allowed = {t: p for t, p in law.items() if position not in leak_map(t)}
                if epsilon is None:
                    for transcript, p in allowed.items():
                        ratio = log(p / other[transcript]) if other.get(transcript) else inf
                        if ratio > worst:
                            worst, witness = ratio, f"{transcript} from {data}, position {position} changed to {value}"
                else:
                    excess = sum(max(0.0, p - exp(epsilon) * other.get(t, 0.0)) for t, p in allowed.items())
                    if excess > delta:
                        delta, witness = excess, f"data {data}, position {position} changed to {value}"
    return Verified(worst if epsilon is None else epsilon, delta, kappa, witness)
