"""Results of audits. An audit can reject a claim; it never proves one."""

from dataclasses import dataclass
from math import inf

from countless_lab.audit.mechanisms import Mechanism

_TOLERANCE = 1e-9  # rounding of log-probabilities; a violation smaller than this is not reported


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """The attempts and the result of one audit, on a round of this `shape`.

    `worst` is the largest log-likelihood ratio off the leaked blocks, or a lower bound of epsilon; `delta_seen` a lower
    bound of delta at the claimed epsilon. `power` describes which violations would have been detected, how probably.
    """

    audit: str
    mechanism: str
    shape: str
    claimed: float
    claimed_delta: float
    worst: float
    delta_seen: float
    tried: int
    unit: str
    violated: bool
    witness: str
    power: str

    @property
    def verdict(self) -> str:
        return "rejected" if self.violated else "no violation found"


class MaxRatio:
    def __init__(self) -> None:
        self.value, self.tried, self.witness, self._overfull = -inf, 0, "", False

    def add(self, value: float, witness: str) -> None:
        self.tried += 1
        if value > self.value:
            self.value, self.witness = value, witness

    def above(self, epsilon: float) -> bool:
        return self.value > epsilon + _TOLERANCE

    def too_many_leaks(self, leaked: int, kappa: int) -> None:
        self._overfull = True
        self.add(inf, f"a transcript leaks {leaked} blocks, and the claimed kappa is {kappa}")

    def finding(
        self, audit: str, mechanism: Mechanism, unit: str, power: str, delta_seen: float | None = None
    ) -> AuditFinding:
        """With `delta_seen` the claim is about that; without, it is that no ratio is above epsilon."""
        claim, worst = mechanism.claim, max(self.value, 0.0)
        above = self.above(claim.epsilon) if delta_seen is None else delta_seen > claim.delta
        return AuditFinding(
            audit=audit,
            mechanism=mechanism.name,
            shape=mechanism.size,
            claimed=claim.epsilon,
            claimed_delta=claim.delta,
            worst=worst,
            delta_seen=delta_seen or 0.0,
            tried=self.tried,
            unit=unit,
            violated=above or self._overfull,
            witness=self.witness,
            power=power,
        )
