"""All audits of one mechanism, each on its shapes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import inf, isfinite
from typing import Any

from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter
from countless.privacy.thresholds import PhasedShape
from countless_lab.audit.empirical_audit import audit_empirically
from countless_lab.audit.exact_audit import audit_exactly, audit_law
from countless_lab.audit.finding import AuditFinding, MaxRatio
from countless_lab.audit.inputs import Deviation
from countless_lab.audit.likelihood_audit import audit_exhaustively, audit_randomly
from countless_lab.audit.mechanisms import Mechanism, get_mechanism

# For exhaustive audits: every kind of change of the tree occurs; the noise is wide against the threshold.
SMALL = PhasedShape(phases=4, threshold=2, threshold_scale=Fraction(8), tree_length=3, tree_scale=Fraction(12))
# For noise tapes, with the noise to enumerate, in scales: one release, where thresholds may be below 0; and four phases
# with three releases, where they are not within the window, so that every draw shows before the next one.
TINY = PhasedShape(phases=2, threshold=2, threshold_scale=Fraction(5, 4), tree_length=1, tree_scale=Fraction(1))
LONGER = PhasedShape(phases=4, threshold=9, threshold_scale=Fraction(1, 2), tree_length=3, tree_scale=Fraction(1))
WINDOWS = {TINY: 7, LONGER: 16}
# For played rounds: more noise, so a smaller epsilon; more than twelve crossings before the last of three releases.
WIDE = PhasedShape(phases=4, threshold=5, threshold_scale=Fraction(2), tree_length=3, tree_scale=Fraction(3))
# For a delta, which takes many transcripts to estimate: they are short.
SHORT = PhasedShape(phases=1, threshold=4, threshold_scale=Fraction(5, 4), tree_length=1, tree_scale=Fraction(1))
SHORT_WINDOW, SHORT_TAPES = 12, 150  # so many transcripts for each one of the others
PLAYS_PER_ROUND = 2.5  # small rounds for one of the size of the plan
STATISTICAL = 6  # the largest number of audits that may reject a true claim by chance: they share the risk


@dataclass(frozen=True, slots=True)
class AuditConfig:
    events: int = 5
    tapes: int = 2
    transcripts: int = 8
    plays: int = 1000
    confidence: float = 0.999

    def __post_init__(self) -> None:
        for name, low, high in (
            ("events", 1, 7),
            ("tapes", 1, 100_000),
            ("transcripts", 1, 10_000),
            ("plays", 100, 10_000_000),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidParameter(name, value, f"an integer between {low} and {high}")
        if not 0.5 <= self.confidence < 1:
            raise InvalidParameter("confidence", self.confidence, "at least 1/2 and below 1")

    @property
    def rounds(self) -> int:
        """The number of rounds of the size of the plan."""
        return max(2, int(self.plays / PLAYS_PER_ROUND))


DEFAULT_CONFIG = AuditConfig()


def audit_mechanism(
    name: str,
    shape: PhasedShape,
    epsilon: float,
    sites: int,
    rng: RandomSource,
    config: AuditConfig = DEFAULT_CONFIG,
    progress: Callable[[float], None] | None = None,
    *,
    first: bool = False,
) -> tuple[AuditFinding, ...]:
    """All audits of the named mechanism: on small cases, and by its stated law at the size and claim of a plan.

    If the claim is true, it is rejected with probability `1 - config.confidence` at most. `progress` is called with the
    part of the audits that is done; with `first` they end with the first one that rejects.
    """
    audits = list(_audits(name, shape, epsilon, sites, rng, config))
    findings: list[AuditFinding] = []
    done, whole = 0.0, sum(cost for cost, _, _, _ in audits)
    for cost, kind, mechanism, audit in audits:
        try:
            findings.append(audit())
        except Deviation as found:
            worst = MaxRatio()
            worst.add(inf, str(found))
            findings.append(worst.finding(kind, mechanism, "rounds", "one such round is enough"))
        if first and findings[-1].violated:
            break
        done += cost
        if progress is not None:
            progress(done / whole)
    return tuple(findings)


def _audits(
    name: str, shape: PhasedShape, epsilon: float, sites: int, rng: RandomSource, config: AuditConfig
) -> Iterator[tuple[float, str, Mechanism, Callable[[], AuditFinding]]]:
    """With what each costs: seconds on one core, for the default configuration."""
    from countless_lab.audit.noise_audit import audit_noise  # numpy, which not every command needs

    small, large = get_mechanism(name, SMALL), get_mechanism(name, shape, epsilon)
    each = 1 - (1 - config.confidence) / STATISTICAL
    if large.law is not None:
        yield 8.0, "noise", large, partial(audit_noise, large, config.rounds, rng.spawn("noise"), each)
    if small.law is not None and small.claim.pure:
        yield 2.1, "exhaustive", small, partial(audit_exhaustively, small, config.events)
        randomly = partial(audit_randomly, large, sites, 8, config.transcripts, rng.spawn("random"))
        yield 2.6, "random", large, randomly
    for size, window in WINDOWS.items():
        mechanism, own = get_mechanism(name, size), rng.spawn("tapes", size.phases)
        if mechanism.law is not None:
            law = partial(audit_law, mechanism, config.tapes, own.spawn("law"), window)
            yield window / 20, "stated law", mechanism, law
        yield window / 10, "noise tapes", mechanism, partial(audit_exactly, mechanism, config.tapes, own, window, each)
    if not small.claim.pure:
        mechanism, tapes = get_mechanism(name, SHORT), SHORT_TAPES * config.tapes
        short = partial(audit_exactly, mechanism, tapes, rng.spawn("delta"), SHORT_WINDOW, each)
        yield 2.0, "noise tapes", mechanism, short
    for size in (TINY, WIDE):
        mechanism, own = get_mechanism(name, size), rng.spawn("played", size.phases)
        yield size.phases, "played", mechanism, partial(audit_empirically, mechanism, config.plays, own, each)


def measure_power(
    name: str,
    shape: PhasedShape,
    epsilon: float,
    sites: int,
    runs: int,
    rng: RandomSource,
    config: AuditConfig = DEFAULT_CONFIG,
) -> int:
    """Count the runs in which the audits reject the named mechanism."""
    found = 0
    for number in range(runs):
        own = rng.spawn("power", name, number)
        found += any(each.violated for each in audit_mechanism(name, shape, epsilon, sites, own, config, first=True))
    return found


def to_json(findings: tuple[AuditFinding, ...]) -> dict[str, Any]:
    """A `worst_seen` of null means unbounded: a transcript that is impossible for a neighbour."""
    return {
        "rejected": any(finding.violated for finding in findings),
        "findings": [
            {
                "audit": finding.audit,
                "mechanism": finding.mechanism,
                "shape": finding.shape,
                "claimed_epsilon": finding.claimed,
                "claimed_delta": finding.claimed_delta,
                "worst_seen": finding.worst if isfinite(finding.worst) else None,
                "delta_seen": finding.delta_seen,
                "tried": finding.tried,
                "unit": finding.unit,
                "verdict": finding.verdict,
                "witness": finding.witness,
                "power": finding.power,
            }
            for finding in findings
        ],
    }
