"""A generic auditor: a lower bound on the epsilon of any mechanism, from repeated runs on two neighbours.

A quarter of the runs suggests events that distinguish the neighbours, another quarter selects the best of them; on the
other half its probabilities are bounded by Clopper and Pearson. An audit can reject a claim; it never proves one.
`countless lab audit` is the auditor of `partial_dp`, which knows its transcripts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, lgamma, log, log1p

from countless.core.parameters import require_integer
from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter
from countless.privacy.events import Event, Parts, candidates, parts, rough_limit
from countless.privacy.finite import Adversary, Data, Mechanism
from countless.privacy.guarantee import PartialDPGuarantee

_NEVER = Event("no event", lambda _: False)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """`violated`, or not: then nothing was found. Epsilon is above `epsilon_seen` with the stated confidence.

    `mine` and `theirs` count an event of the `trials` runs on either database, the likelier one first.
    """

    violated: bool
    epsilon_seen: float
    mine: int
    theirs: int
    trials: int
    witness: str


def audit(
    mechanism: Mechanism,
    claim: PartialDPGuarantee,
    data: Sequence[object],
    position: int,
    value: object,
    adversary: Adversary,
    plays: int,
    rng: RandomSource,
    confidence: float = 0.999,
) -> AuditResult:
    """Run the mechanism on the data, and on the data with another value at one position; compare both ways.

    Events are looked for in the whole transcript and in its parts (`countless.privacy.events`). What shows in neither,
    for example only in the product of two numbers, is not found: put it into the transcript.

    Formal guarantees: a true claim is rejected with probability at most `1 - confidence`. A transcript that leaks more
    than kappa positions rejects the claim with certainty.

    >>> from countless.privacy.finite import asking, sampled
    >>> from countless.randomness import SeededRandom
    >>> def response(data, adversary, choose):
    ...     return data[0] ^ choose({0: 0.75, 1: 0.25})
    >>> claims = [PartialDPGuarantee(log(3)), PartialDPGuarantee(0.5)]
    >>> [audit(sampled(response), c, (0,), 0, 1, asking([]), 4000, SeededRandom(1)).violated for c in claims]
    [False, True]
    """
    require_integer("plays", plays, 100)
    if not 0.5 <= confidence < 1:
        raise InvalidParameter("confidence", confidence, "at least 1/2 and below 1")
    if not 0 <= position < len(data):
        raise InvalidParameter("position", position, f"between 0 and {len(data) - 1}")
    other = (*data[:position], value, *data[position + 1 :])
    runs = []
    for database, name in ((tuple(data), "mine"), (other, "theirs")):
        found, overfull = _runs(mechanism, claim, database, position, adversary, plays, rng.spawn(name))
        if overfull:
            return AuditResult(True, inf, 0, 0, 0, overfull)
        runs.append(found)
    risk = (1 - confidence) / 2  # for each direction
    mine, theirs = runs
    both = (_one_way(mine, theirs, claim, risk, "the data"), _one_way(theirs, mine, claim, risk, "the changed data"))
    return max(both, key=lambda result: result.epsilon_seen)


def _one_way(
    mine: Sequence[Parts], theirs: Sequence[Parts], claim: PartialDPGuarantee, risk: float, likelier: str
) -> AuditResult:
    quarter, half = len(mine) // 4, len(mine) // 2

    def rough(event: Event) -> float:
        hits, misses = (event.count(runs[quarter:half]) for runs in (mine, theirs))
        return rough_limit(hits, misses, half - quarter, claim.delta)

    event = max(candidates(mine[:quarter], theirs[:quarter], claim.delta), key=rough, default=_NEVER)
    hits, misses = (event.count(runs[half:]) for runs in (mine, theirs))
    trials, each = len(mine) - half, 1 - risk / 2
    low, high = lower_limit(hits, trials, each) - claim.delta, 1 - lower_limit(trials - misses, trials, each)
    seen = log(low / high) if low > 0 else -inf
    witness = f"{event.name}: {hits} times with {likelier}, {misses} times with the other, in {trials} runs each"
    return AuditResult(seen > claim.epsilon, max(0.0, seen), hits, misses, trials, witness)


def _runs(
    mechanism: Mechanism,
    claim: PartialDPGuarantee,
    data: Data,
    position: int,
    adversary: Adversary,
    plays: int,
    rng: RandomSource,
) -> tuple[list[Parts], str]:
    """The parts of transcripts, None for those that leak the position; and what shows that kappa is too small."""
    found: list[Parts] = []
    for number in range(plays):
        transcript = mechanism(data, adversary, rng.spawn("play", number))
        leaked = claim.leak_map(transcript)
        if len(leaked) > claim.kappa:
            return [], f"a transcript leaks {len(leaked)} positions, and the claimed kappa is {claim.kappa}"
        found.append(None if position in leaked else parts(transcript))
    return found, ""


def lower_limit(successes: int, trials: int, confidence: float) -> float:
    """A p that is below the true probability with at least this confidence: P(at least so many) is the risk there.

    >>> round(lower_limit(10, 10, 0.95), 4)  # 0.05 ** 0.1
    0.7411
    """
    if successes == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _upper_tail(successes, trials, middle) < 1 - confidence else (low, middle)
    return low


def _upper_tail(successes: int, trials: int, p: float) -> float:
    if p >= 1:
        return 1.0
    ways = lgamma(trials + 1)
    odds, rest = log(p) if p > 0 else -inf, log1p(-p)
    return sum(
        exp(ways - lgamma(k + 1) - lgamma(trials - k + 1) + k * odds + (trials - k) * rest)
        for k in range(successes, trials + 1)
    )
