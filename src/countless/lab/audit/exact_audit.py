"""An exact black-box audit: every noise tape of a small mechanism, weighted by its probability.

The code of the mechanism runs once for each sequence of noise values within a window; the audit trusts only that the
noise has the law it asks for. That gives the exact distribution of transcripts for two neighbouring databases, up to
the weight of the tapes outside the window, which counts in favour of the mechanism. So a violation of any kind on these
scenarios is found with certainty if it is larger than that weight.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import exp, inf, log

from countless.errors import InvalidParameter
from countless.lab.audit.inputs import replay
from countless.lab.audit.likelihood_audit import AuditFinding, MaxRatio
from countless.lab.audit.mechanisms import Mechanism
from countless.lab.audit.transcripts import Block, Transcript, log_pmf

MAX_TAPES = 1_000_000  # for one database


class _NeedsMore(Exception):
    def __init__(self, scale: Fraction) -> None:
        self.scale = scale


class TapeNoise:
    def __init__(self, tape: tuple[int, ...]) -> None:
        self._tape, self._next = tape, 0

    def laplace(self, scale: Fraction) -> int:
        if self._next >= len(self._tape):
            raise _NeedsMore(scale)
        self._next += 1
        return self._tape[self._next - 1]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Fixed events, and two threshold vectors that differ in one block."""

    name: str
    step: int
    events: tuple[int, ...]
    block: Block
    place: int
    other: int

    def thresholds(self, place: int) -> dict[Block, int]:
        """Every site reports at the first event of each block, except in the block that differs."""
        blocks = {(site, 1 + index) for site in self.events for index in range(len(self.events))}
        return dict.fromkeys(blocks, 1) | {self.block: place}


def scenarios() -> tuple[Scenario, ...]:
    """Site 0 gets an event, others cross, site 0 gets its second event, others cross: early against late.

    >>> [scenario.name for scenario in scenarios()][:2]
    ['apart by 1, early first', 'apart by 1, late first']
    """
    made = []
    for apart in (1, 2, 4):
        events = (0, *range(1, apart + 1), 0, *range(apart + 1, apart + 6))
        for name, place, other in (("early first", 1, 2), ("late first", 2, 1)):
            made.append(Scenario(f"apart by {apart}, {name}", 2, events, (0, 1), place, other))
    return tuple(made)


@dataclass(slots=True)
class Distribution:
    """Probabilities of transcripts, and the weight of the tapes outside the window."""

    weights: dict[Transcript, float] = field(default_factory=dict)
    missing: float = 0.0
    tapes: int = 0


def distribution(mechanism: Mechanism, scenario: Scenario, place: int, window: int) -> Distribution:
    """The law of the transcript, by running the mechanism on every tape with values within the window.

    Depth first: a tape grows only when the mechanism needs more noise than the tape holds.
    """
    found = Distribution()
    thresholds = scenario.thresholds(place)
    open_tapes: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while open_tapes:
        tape, weight = open_tapes.pop()
        try:
            run = replay(mechanism.build(TapeNoise(tape)), scenario.events, thresholds, scenario.step)
        except _NeedsMore as more:
            open_tapes.extend(((*tape, x), weight * p) for x, p in _noise_values(more.scale, window))
            continue
        found.weights[run] = found.weights.get(run, 0.0) + weight
        found.tapes += 1
        if found.tapes > MAX_TAPES:
            raise InvalidParameter("window", window, "smaller: there are too many noise tapes")
    found.missing = max(0.0, 1.0 - sum(found.weights.values()))
    return found


@cache
def _noise_values(scale: Fraction, window: int) -> tuple[tuple[int, float], ...]:
    if scale == 0:
        return ((0, 1.0),)
    return tuple((x, exp(log_pmf(x, scale))) for x in range(-window, window + 1))


def audit_exactly(mechanism: Mechanism, window: int = 9) -> AuditFinding:
    """Compare the exact laws of neighbouring databases on every scenario.

    For each pair, the event "the likelihood ratio exceeds the claim" is formed off the leaked transcripts. It is a
    violation only if it remains one when the neighbour gets all the weight outside the window.
    """
    worst, cut_off = MaxRatio(), 0.0
    for scenario in scenarios():
        mine = distribution(mechanism, scenario, scenario.place, window)
        theirs = distribution(mechanism, scenario, scenario.other, window)
        cut_off = max(cut_off, theirs.missing * exp(mechanism.claim.epsilon))
        worst.add(_certain_ratio(mechanism, scenario, mine, theirs), scenario.name)
        worst.tried += mine.tapes + theirs.tapes - 1
    power = (
        f"all noise within ±{window} was enumerated on {len(scenarios())} scenarios: a transcript whose "
        f"probability exceeds exp(epsilon) times the neighbour's by more than {cut_off:.1e} would have been "
        "seen with certainty; other event orders were not tried"
    )
    return worst.finding("noise tapes", mechanism, "runs of the mechanism", power)


def _certain_ratio(mechanism: Mechanism, scenario: Scenario, mine: Distribution, theirs: Distribution) -> float:
    """The largest log-ratio over two kinds of events when the neighbour gets all the weight outside the window."""
    limit = exp(mechanism.claim.epsilon)
    event_mine = event_theirs = 0.0
    best = -inf
    for transcript, weight in mine.weights.items():
        if scenario.block in mechanism.claim.leaked(transcript):
            continue
        other = theirs.weights.get(transcript, 0.0)
        best = max(best, _log_ratio(weight, other + theirs.missing))
        if weight > limit * other:
            event_mine += weight
            event_theirs += other
    if event_mine > 0:
        best = max(best, _log_ratio(event_mine, event_theirs + theirs.missing))
    return best


def _log_ratio(mine: float, theirs: float) -> float:
    if mine <= 0:
        return -inf
    return log(mine / theirs) if theirs > 0 else inf
