"""Exact black-box audits: the probability of a transcript by running the code on every noise tape that leads to it.

The audits trust only that the noise has the law it is asked for. A tape grows only when the mechanism asks for more
noise, and is dropped as soon as what the code publishes differs from the transcript. So the work grows with the number
of draws, as long as each one shows before the next, and rounds with many phases can be audited. Noise beyond the window
is not tried; its weight counts in favour of the mechanism.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from heapq import heappop, heappush
from math import ceil, exp, inf, log

from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter
from countless.privacy.noise import RandomSourceNoise
from countless_lab.audit.finding import AuditFinding, MaxRatio
from countless_lab.audit.inputs import Deviates, NeedsMore, replay
from countless_lab.audit.mechanisms import Mechanism
from countless_lab.audit.scenarios import Scenario, scenarios
from countless_lab.audit.transcripts import LikelihoodRatios, Transcript, log_at_most, log_pmf
from countless_lab.confidence import lower_limit

MAX_RUNS = 6_000  # for one transcript
_NEGLIGIBLE = 1e-3  # as a share of what was found
MAX_REACH = 1000  # values enumerated on each side of 0, of noise that is wider than the window
FLAT = 2  # in scales: every second transcript is drawn with noise uniform within so much, to find rare ones


class TapeNoise:
    def __init__(self, tape: tuple[int, ...]) -> None:
        self._tape, self._next = tape, 0

    def laplace(self, scale: Fraction) -> int:
        if self._next >= len(self._tape):
            raise NeedsMore(scale)
        self._next += 1
        return self._tape[self._next - 1]


class FlatNoise:
    def __init__(self, rng: RandomSource) -> None:
        self._rng = rng

    def laplace(self, scale: Fraction) -> int:
        reach = ceil(FLAT * scale)
        return self._rng.randbelow(2 * reach + 1) - reach


@dataclass(slots=True)
class Likelihood:
    """Limits of the probability of a transcript, and how often the code ran."""

    low: float = 0.0
    unseen: float = 0.0
    runs: int = 0

    @property
    def high(self) -> float:
        return self.low + self.unseen


def likelihood(mechanism: Mechanism, scenario: Scenario, place: int, target: Transcript, window: int) -> Likelihood:
    """P(target) if the block's threshold is `place`; noise within `window` times its scale is enumerated.

    The most probable tapes run first. It stops when the others hardly matter, or after `MAX_RUNS`.
    """
    found, phases = Likelihood(), mechanism.shape.phases
    thresholds = scenario.thresholds(place)
    tapes: list[tuple[float, tuple[int, ...]]] = [(-1.0, ())]
    waiting = 1.0
    while tapes and found.runs < MAX_RUNS and waiting > _NEGLIGIBLE * found.low:
        minus, tape = heappop(tapes)
        waiting += minus
        found.runs += 1
        try:
            replay(mechanism.build(TapeNoise(tape)), scenario.events, thresholds, scenario.step, phases, target)
        except NeedsMore as more:
            values, beyond = _noise_values(more.scale, window)
            for x, p in values:
                heappush(tapes, (minus * p, (*tape, x)))
            waiting -= minus * (1 - beyond)
            found.unseen -= minus * beyond
        except Deviates:
            pass
        else:
            found.low -= minus
    found.unseen -= sum(minus for minus, _ in tapes)
    return found


@cache
def _noise_values(scale: Fraction, window: int) -> tuple[tuple[tuple[int, float], ...], float]:
    """The values within the window with their probabilities, and the probability of all others."""
    if scale == 0:
        return ((0, 1.0),), 0.0
    reach = min(ceil(window * scale), MAX_REACH)
    return tuple((x, exp(log_pmf(x, scale))) for x in range(-reach, reach + 1)), 2 * exp(log_at_most(-reach - 1, scale))


@dataclass(frozen=True, slots=True)
class Drawn:
    scenario: Scenario
    transcript: Transcript
    mine: Likelihood


def _draw(mechanism: Mechanism, tapes: int, window: int, rng: RandomSource, flat: bool) -> Iterator[Drawn]:
    """Transcripts of the code, `tapes` for each scenario; with `flat`, every second one is a rare one."""
    phases = mechanism.shape.phases
    for scenario in scenarios(mechanism.shape):
        thresholds = scenario.thresholds(scenario.place)
        for number in range(tapes):
            own = rng.spawn(scenario.name, number)
            noise = FlatNoise(own) if flat and number % 2 else RandomSourceNoise(own)
            transcript = replay(mechanism.build(noise), scenario.events, thresholds, scenario.step, phases)
            yield Drawn(scenario, transcript, likelihood(mechanism, scenario, scenario.place, transcript, window))


def audit_exactly(
    mechanism: Mechanism, tapes: int, rng: RandomSource, window: int, confidence: float = 0.999
) -> AuditFinding:
    """Exact likelihood ratios of transcripts of the code, for neighbours whose crossing is in another phase.

    A pure claim is rejected by one transcript with a larger ratio, with certainty. A claim with a delta is about
    `E (1 - e^epsilon P'/P)+` over transcripts; it is rejected if the lower confidence limit of that is above delta.
    """
    claim, worst = mechanism.claim, MaxRatio()
    drawn_in: dict[str, int] = {}
    excess: dict[str, int] = {}
    for drawn in _draw(mechanism, tapes, window, rng, flat=claim.pure):
        if claim.pure and worst.above(claim.epsilon):
            break  # one is enough
        scenario, mine = drawn.scenario, drawn.mine
        drawn_in[scenario.name] = drawn_in.get(scenario.name, 0) + 1
        leaked = claim.leak_map(drawn.transcript)
        if len(leaked) > claim.kappa:
            worst.too_many_leaks(len(leaked), claim.kappa)
        elif scenario.block not in leaked and mine.low > 0:
            theirs = likelihood(mechanism, scenario, scenario.other, drawn.transcript, window)
            worst.add(log(mine.low / theirs.high) if theirs.high > 0 else inf, f"{scenario.name}: {drawn.transcript}")
            share = 1 - exp(claim.epsilon) * theirs.high / mine.low
            # Heads with this probability: their number is binomial, and its mean is the delta of the definition.
            excess[scenario.name] = excess.get(scenario.name, 0) + (rng.randbelow(1 << 30) < share * (1 << 30))
    delta = None
    if not claim.pure:
        each = 1 - (1 - confidence) / len(drawn_in)
        delta = max(lower_limit(excess.get(name, 0), number, each) for name, number in drawn_in.items())
    power = (
        f"{tapes} transcripts of each of {len(drawn_in)} scenarios, noise within {window} times its scale enumerated: "
        "a violation by one of them would have been seen with certainty; others were not tried"
    )
    return worst.finding("noise tapes", mechanism, "transcripts", power, delta)


def audit_law(mechanism: Mechanism, tapes: int, rng: RandomSource, window: int) -> AuditFinding:
    """Compare the stated law with the code's: both must give every transcript the same probability."""
    if mechanism.law is None:
        raise InvalidParameter("mechanism", mechanism.name, "one that states the law of its noise")
    worst = MaxRatio()
    for drawn in _draw(mechanism, tapes, window, rng, flat=True):
        if worst.value > 0:
            break  # one is enough
        thresholds = drawn.scenario.thresholds(drawn.scenario.place)
        stated = exp(LikelihoodRatios(mechanism.law, drawn.transcript, thresholds).log_likelihood())
        same = drawn.mine.low * (1 - 1e-9) <= stated <= drawn.mine.high * (1 + 1e-9)
        name = f"{drawn.scenario.name}: {drawn.transcript}"
        worst.add(0.0 if same else inf, f"{name} has probability {drawn.mine.low:.3g}, by the law {stated:.3g}")
    power = (
        f"{worst.tried} transcripts: a difference in one of them would have been seen with certainty; "
        "what the likelihood audits find is true of the code only where the law is"
    )
    return worst.finding("stated law", mechanism, "transcripts", power)
