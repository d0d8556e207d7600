"""A statistical black-box audit: a lower bound on epsilon from repeated runs, with its confidence.

The mechanism runs many times on each of two neighbouring databases. A quarter of the runs selects for each of several
views of a transcript the event that distinguishes the databases best; another quarter selects the best of these. On the
second half, which the selection has not seen, the two probabilities of that event are bounded by Clopper and Pearson,
and their ratio, after delta is subtracted, bounds epsilon from below. A bound above the claim rejects the claim; a
bound below it means only that this test, with its stated power, found nothing.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import exp, inf

from countless.core.parameters import require_integer
from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter
from countless.privacy.noise import RandomSourceNoise
from countless_lab.audit.finding import AuditFinding, MaxRatio
from countless_lab.audit.inputs import replay
from countless_lab.audit.mechanisms import Mechanism
from countless_lab.audit.scenarios import Scenario, scenarios
from countless_lab.audit.transcripts import Transcript
from countless_lab.confidence import log_ratio_limit, quantile

View = Hashable  # what one way of looking at a transcript shows; None: it leaks the block, so no event contains it


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
    tried, worst = scenarios(mechanism.shape), MaxRatio()
    each = 1 - (1 - confidence) / len(tried)
    found = [_bound(mechanism, scenario, plays, rng.spawn(scenario.name), each, worst) for scenario in tried]
    best = max(found, key=lambda outcome: outcome.limit)
    event = f"the event came up {best.mine} and {best.theirs} times in {best.trials} plays each"
    worst.add(best.limit, f"{best.scenario}: {event}")
    worst.tried = 2 * plays * len(found)
    power = _power(best, mechanism.claim.epsilon, each, confidence)
    return worst.finding("played", mechanism, "rounds played", power)


def _bound(
    mechanism: Mechanism, scenario: Scenario, plays: int, rng: RandomSource, confidence: float, worst: MaxRatio
) -> EmpiricalBound:
    claim, quarter, half = mechanism.claim, plays // 4, plays // 2
    mine = _transcripts(mechanism, scenario, scenario.place, plays, rng.spawn("mine"), worst)
    theirs = _transcripts(mechanism, scenario, scenario.other, plays, rng.spawn("theirs"), worst)
    best, number, event = -inf, 0, set[View]()
    for view in range(len(mine[0])):
        ours, others = (Counter(views[view] for views in runs[:quarter]) for runs in (mine, theirs))
        chosen = _best_event(ours, others, claim.epsilon, claim.delta)
        # A view that shows much fits its own quarter too well, so another quarter decides between the views.
        hits, misses = (_count(runs[quarter:half], view, chosen) for runs in (mine, theirs))
        limit = log_ratio_limit(hits, misses, half - quarter, 0.99, claim.delta)
        if limit > best:
            best, number, event = limit, view, chosen
    hits, misses = (_count(runs[half:], number, event) for runs in (mine, theirs))
    limit = log_ratio_limit(hits, misses, plays - half, confidence, claim.delta)
    return EmpiricalBound(scenario.name, hits, misses, plays - half, limit)


def _count(runs: list[list[View]], view: int, event: set[View]) -> int:
    return sum(views[view] in event for views in runs)


def _transcripts(
    mechanism: Mechanism, scenario: Scenario, place: int, plays: int, rng: RandomSource, worst: MaxRatio
) -> list[list[View]]:
    """The views of each transcript."""
    thresholds, claim = scenario.thresholds(place), mechanism.claim
    noise = RandomSourceNoise(rng)
    seen, phases = [], mechanism.shape.phases
    for _ in range(plays):
        transcript = replay(mechanism.build(noise), scenario.events, thresholds, scenario.step, phases)
        leaked = claim.leak_map(transcript)
        if len(leaked) > claim.kappa:
            worst.too_many_leaks(len(leaked), claim.kappa)
        views = _views(transcript, scenario, mechanism.shape.phases)
        seen.append([None if scenario.block in leaked else view for view in views])
    return seen


def _views(transcript: Transcript, scenario: Scenario, phases: int) -> Iterator[View]:
    """The whole transcript, its endings, and for each phase what depends least on the noise of the others.

    Nearly every event of a scenario is a crossing. So the length of a phase shows its threshold, and a release minus
    the number of events shows the noise of the release; both up to where the events of the block are.
    """
    yield transcript
    yield transcript.endings
    ends, sums = (0, *transcript.endings), (0, *transcript.released)
    for phase in range(1, phases + 1):
        if phase >= len(ends):
            yield from ((), (), ())
            continue
        block = tuple(bisect_right(scenario.block_events, end) for end in ends[phase - 1 : phase + 1])
        length = ends[phase] - ends[phase - 1]
        yield length, block
        release = sums[phase] if phase < len(sums) else None
        yield None if release is None else release - ends[phase], block[1]
        yield None if release is None else release - sums[phase - 1] - length, block


def _best_event(mine: Counter[View], theirs: Counter[View], epsilon: float, delta: float) -> set[View]:
    """Views in the order of their observed ratios, cut where the lower bound is largest."""
    ranked = sorted((t for t in mine if t is not None), key=lambda t: (theirs[t] + 0.5) / mine[t])
    trials = max(mine.total(), theirs.total())
    hits = misses = 0
    best, length = -inf, 0
    checkpoints = {round(len(ranked) * share / 40) for share in range(1, 41)}
    for index, view in enumerate(ranked, start=1):
        hits += mine[view]
        misses += theirs[view]
        if index in checkpoints or index <= 10:
            limit = log_ratio_limit(hits, misses, trials, 0.99, delta)
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
    return f"{event}, this number of plays would not have shown any excess reliably; {risk}"
