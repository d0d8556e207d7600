"""Partial differential privacy as a value: (epsilon, delta, kappa) and the leak map (paper, Definition 3).

A mechanism is (epsilon, delta, kappa)-partially private if for a leak map f with |f(transcript)| <= kappa,
for every position i, all data S, S' that differ only at i, and every event E of transcripts none of which
leaks i:

    P(transcript in E | S)  <=  exp(epsilon) P(transcript in E | S') + delta.

The leak map belongs to the guarantee: which positions are leaked depends on the transcript. A composition that is not
proved raises InvalidParameter. Proofs: design/proofs/partial-dp.md.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import expm1, isfinite
from typing import Any

from countless.core.parameters import require_integer
from countless.errors import InvalidParameter, InvariantBroken

Leaked = frozenset[Hashable]


@dataclass(frozen=True, slots=True)
class LeakMap:
    """From a transcript to the positions it may reveal entirely. `fixed` is set if they never vary."""

    name: str
    leaks: Callable[[Any], Leaked]
    fixed: Leaked | None = None

    def __call__(self, transcript: Any) -> Leaked:
        return self.leaks(transcript)

    @classmethod
    def nothing(cls) -> "LeakMap":
        """Ordinary differential privacy: no transcript leaks anything."""
        return cls.always(frozenset())

    @classmethod
    def always(cls, positions: Leaked) -> "LeakMap":
        """The same positions for every transcript."""
        return cls(f"always {len(positions)} fixed positions", lambda _: positions, positions)


NOTHING_LEAKS = LeakMap.nothing()


def _both(first: LeakMap, second: LeakMap) -> LeakMap:
    """The leak map of a pair of transcripts: the union."""
    if first.fixed is not None and second.fixed is not None:
        return LeakMap.always(first.fixed | second.fixed)
    return LeakMap(f"{first.name}, and {second.name}", lambda pair: first(pair[0]) | second(pair[1]))


@dataclass(frozen=True, slots=True)
class PartialDPGuarantee:
    """The guarantee of one mechanism.

    >>> tracker = PartialDPGuarantee(0.1, 0.0, 32, LeakMap("the block that ended each phase", lambda t: frozenset(t)))
    >>> twice = tracker.compose_sequential(tracker)
    >>> twice.epsilon, twice.kappa, sorted(twice.leak_map(([1, 2], [2, 3])))
    (0.2, 64, [1, 2, 3])
    """

    epsilon: float
    delta: float = 0.0
    kappa: int = 0
    leak_map: LeakMap = NOTHING_LEAKS

    def __post_init__(self) -> None:
        if not (isfinite(self.epsilon) and self.epsilon >= 0):
            raise InvalidParameter("epsilon", self.epsilon, "finite and at least 0")
        if not 0 <= self.delta < 1:
            raise InvalidParameter("delta", self.delta, "at least 0 and below 1")
        require_integer("kappa", self.kappa, 0)
        if self.leak_map.fixed is not None and len(self.leak_map.fixed) > self.kappa:
            raise InvalidParameter("kappa", self.kappa, f"at least the {len(self.leak_map.fixed)} leaked")

    @property
    def pure(self) -> bool:
        """True if delta is 0, so that the inequality holds transcript by transcript."""
        return self.delta == 0

    def leaked(self, transcript: Any) -> Leaked:
        """The leak of this transcript; raises InvariantBroken if it is more than kappa."""
        positions = self.leak_map(transcript)
        if len(positions) > self.kappa:
            raise InvariantBroken(f"a transcript leaks {len(positions)} positions, but kappa is {self.kappa}")
        return positions

    def compose_sequential(self, later: "PartialDPGuarantee") -> "PartialDPGuarantee":
        """Both mechanisms on the same data, `later` chosen with knowledge of the first one's whole transcript.

        Formal guarantees: epsilons, deltas and kappas add; the leak map of the pair is the union.
        """
        return self._sum(later)

    def compose_concurrent(self, other: "PartialDPGuarantee") -> "PartialDPGuarantee":
        """Both on the same data, questions interleaved: proved for delta = 0, where likelihoods multiply."""
        for guarantee in (self, other):
            if not guarantee.pure:
                raise InvalidParameter(
                    "delta", guarantee.delta, "0: interleaving is proved for pure partial privacy only"
                )
        return self._sum(other)

    def _sum(self, other: "PartialDPGuarantee") -> "PartialDPGuarantee":
        leak_map = _both(self.leak_map, other.leak_map)
        kappa = self.kappa + other.kappa if leak_map.fixed is None else len(leak_map.fixed)
        delta = self.delta + other.delta
        if delta >= 1:
            raise InvalidParameter("delta", delta, "below 1 after composition: the bound would be vacuous")
        return PartialDPGuarantee(self.epsilon + other.epsilon, delta, kappa, leak_map)

    def compose_parallel(self, other: "PartialDPGuarantee") -> "PartialDPGuarantee":
        """Mechanisms on *disjoint* parts of the data: a change affects one of them, so the larger epsilon counts.

        The leaks still add up: each part may leak its kappa positions.
        """
        together = self._sum(other)
        delta = max(self.delta, other.delta)
        return PartialDPGuarantee(max(self.epsilon, other.epsilon), delta, together.kappa, together.leak_map)

    def compose_n(self, times: int, method: str = "basic") -> "PartialDPGuarantee":
        """The same kind of mechanism `times` times, each chosen adaptively; the transcript is their tuple.

        Basic composition is exact: there are mechanisms whose `times` runs cost `times * epsilon`, so advanced
        composition is false for partial privacy (design/proofs/partial-dp.md, composition).
        """
        if method != "basic":
            raise InvalidParameter("method", method, "basic: a counterexample rules out advanced composition")
        require_integer("times", times, 1)
        if self.delta * times >= 1:
            raise InvalidParameter("times", times, "so few that times * delta is below 1")
        if self.leak_map.fixed is not None:
            leak_map, kappa = self.leak_map, len(self.leak_map.fixed)
        else:
            name = f"{self.leak_map.name}, {times} times"
            leak_map = LeakMap(name, lambda runs: frozenset().union(*(self.leak_map(run) for run in runs)))
            kappa = self.kappa * times
        return PartialDPGuarantee(self.epsilon * times, self.delta * times, kappa, leak_map)

    def group(self, size: int) -> tuple[float, float]:
        """(epsilon, delta) when `size` positions change at once and the transcripts leak none of them."""
        require_integer("size", size, 1)
        growth = size if self.epsilon == 0 else expm1(size * self.epsilon) / expm1(self.epsilon)
        return size * self.epsilon, self.delta * growth

    def postprocess(self, outputs: Callable[[Any], Any], leak_map: LeakMap, kappa: int) -> "PostprocessedGuarantee":
        """The guarantee of `outputs(transcript)` under a leak map for outputs.

        Post-processing is *not* free here: an output hides which transcript it came from, so its leak map must cover
        the leaks of all of them. `PostprocessedGuarantee.check` tests that on given transcripts, which is no proof.
        """
        return PostprocessedGuarantee(self, outputs, PartialDPGuarantee(self.epsilon, self.delta, kappa, leak_map))


@dataclass(frozen=True, slots=True)
class PostprocessedGuarantee:
    """A post-processed mechanism: its guarantee holds if `check` holds on every transcript."""

    source: PartialDPGuarantee
    outputs: Callable[[Any], Any]
    guarantee: PartialDPGuarantee

    def check(self, transcript: Any) -> None:
        """Raise if the output's leak map misses something the transcript leaked."""
        missed = self.source.leaked(transcript) - self.guarantee.leaked(self.outputs(transcript))
        if missed:
            raise InvariantBroken(f"the output's leak map misses {len(missed)} leaked positions")
