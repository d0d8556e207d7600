"""A statistical black-box audit: a lower bound on epsilon from repeated runs, with its confidence.

The mechanism runs many times on each of two neighbouring databases. The first half of the runs selects the event that
distinguishes the databases best. On the second half, which the selection has not seen, the two probabilities of that
event are bounded by Clopper and Pearson, and their ratio bounds epsilon from below. A bound above the claim rejects the
claim; a bound below it means only that this test, with its stated power, found nothing.
"""

from collections import Counter
from dataclasses import dataclass
from math import exp, inf

from countless.core.parameters import require_integer
from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter
from countless.lab.audit.exact_audit import Scenario, scenarios
from countless.lab.audit.inputs import replay
from countless.lab.audit.likelihood_audit import AuditFinding
from countless.lab.audit.mechanisms import Mechanism
from countless.lab.audit.transcripts import Transcript
from countless.lab.confidence import log_ratio_limit, quantile
from countless.privacy.noise import RandomSourceNoise


@dataclass(frozen=True, slots=True)
class EmpiricalBound:
    """One scenario: counts of the selected event in the second half, and the lower bound on epsilon they give."""

    scenario: str
    mine: int
    theirs: int
    trials: int
    limit: float


def audit_empirically(mechanism: Mechanism, plays: int, rng: RandomSource, confidence: float = 0.999) -> AuditFinding:
    """The best lower bound on epsilon over all scenarios. The confidence holds for all of them together.

    Formal guarantees: if the claim is true, the probability of rejecting it is at most `1 - confidence`.
    """
    require_integer("plays", plays, 100)
    if not 0.5 <= confidence < 1:
        raise InvalidParameter("confidence", confidence, "at least 1/2 and below 1")
    each = 1 - (1 - confidence) / len(scenarios())
    found = [_bound(mechanism, scenario, plays, rng.spawn(scenario.name), each) for scenario in scenarios()]
    best = max(found, key=lambda outcome: outcome.limit)
    claimed = mechanism.claim.epsilon
    witness = f"{best.scenario}: the event came up {best.mine} and {best.theirs} times in {best.trials} plays each"
    return AuditFinding(
        audit="played",
        mechanism=mechanism.name,
        claimed=claimed,
        worst=max(0.0, best.limit),
        tried=2 * plays * len(found),
        unit="rounds played",
        violated=best.limit > claimed,
        witness=witness,
        power=_power(best, claimed, each, confidence),
    )


def _bound(
    mechanism: Mechanism, scenario: Scenario, plays: int, rng: RandomSource, confidence: float
) -> EmpiricalBound:
    half = plays // 2
    mine = _transcripts(mechanism, scenario, scenario.place, plays, rng.spawn("mine"))
    theirs = _transcripts(mechanism, scenario, scenario.other, plays, rng.spawn("theirs"))
    event = _best_event(Counter(mine[:half]), Counter(theirs[:half]), mechanism.claim.epsilon)
    hits = sum(transcript in event for transcript in mine[half:])
    misses = sum(transcript in event for transcript in theirs[half:])
    trials = plays - half
    return EmpiricalBound(scenario.name, hits, misses, trials, log_ratio_limit(hits, misses, trials, confidence))


def _transcripts(
    mechanism: Mechanism, scenario: Scenario, place: int, plays: int, rng: RandomSource
) -> list[Transcript | None]:
    """Transcripts; None replaces those that leak the block, because no event may contain them."""
    thresholds = scenario.thresholds(place)
    noise = RandomSourceNoise(rng)
    seen: list[Transcript | None] = []
    for _ in range(plays):
        transcript = replay(mechanism.build(noise), scenario.events, thresholds, scenario.step)
        seen.append(None if scenario.block in mechanism.claim.leaked(transcript) else transcript)
    return seen


def _best_event(
    mine: Counter[Transcript | None], theirs: Counter[Transcript | None], epsilon: float
) -> set[Transcript | None]:
    """Transcripts in the order of their observed ratios, cut where the first half's lower bound is largest."""
    ranked = sorted((t for t in mine if t is not None), key=lambda t: (theirs[t] + 0.5) / mine[t])
    trials = max(mine.total(), theirs.total())
    hits = misses = 0
    best, length = -inf, 0
    checkpoints = {round(len(ranked) * share / 40) for share in range(1, 41)}
    for index, transcript in enumerate(ranked, start=1):
        hits += mine[transcript]
        misses += theirs[transcript]
        if index in checkpoints or index <= 10:
            limit = log_ratio_limit(hits, misses, trials, 0.99)
            if limit > best:
                best, length = limit, index
            if hits < misses * exp(epsilon) / 4:
                break  # no later event can help
    return set(ranked[:length])


def _power(best: EmpiricalBound, claimed: float, each: float, confidence: float) -> str:
    """The excess over the claim that so many runs detect with probability 90 %, for an event like this one."""
    q = max(best.theirs, 1) / best.trials
    risk = f"a true claim is rejected with probability at most {1 - confidence:.2g}"
    event = f"for an event that the neighbour shows with probability {q:.2g}"
    for tenth in range(1, 200):
        p = exp(claimed + tenth / 10) * q
        if p > 0.98:
            break
        low, high = quantile(best.trials, p, 0.05)[0], quantile(best.trials, q, 0.05)[1]
        if log_ratio_limit(low, high, best.trials, each) > claimed:
            seen = f"an epsilon {tenth / 10:.1f} above the claim would have been seen with probability 90 %"
            return f"{event}, {seen}; {risk}"
    return f"{event}, in so many plays no excess would have been seen reliably; {risk}"
