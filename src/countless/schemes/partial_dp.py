"""`partial_dp`: the paper's Algorithms 1 and 2, blocks behind noisy phases and a binary mechanism (SPEC 3.1)."""

from collections.abc import Sequence

from countless.core.dice import Dice
from countless.core.ledger import Entry
from countless.core.paces import Blocks, Pace
from countless.core.publisher import OVER, Case, Consequence, Publisher
from countless.errors import UnknownName
from countless.planning.book import PlanBook
from countless.planning.partial_dp import CALIBRATIONS, PartialDPPlan, plan_partial_dp
from countless.privacy.binary_mechanism import BinaryMechanism
from countless.privacy.noise import DiceNoise, Noise
from countless.schemes.calibrated import Calibrated


class NoisyPhases(Publisher):
    """Crossings are counted in phases of noisy length; each phase's count enters a private running sum."""

    def __init__(self, plan: PartialDPPlan, step: int, noise: Noise) -> None:
        self._plan = plan
        self._pace = Blocks(step)
        self._noise = noise
        # The last phase ends the round, so its count is never published and needs no place in the tree.
        self._sums = BinaryMechanism.with_scale(max(1, plan.tree_length), plan.tree_scale, noise)
        self._total = 0  # at the start of the round; what joiners bring is added
        self._published = 0  # the noisy number of crossings
        self._phase = 0
        self._count = 0  # crossings in this phase

    def pace(self, slot: int) -> Pace:
        """The same for all; each site draws its thresholds lazily."""
        return self._pace

    def open(self, entries: Sequence[Entry], departed: int) -> None:
        """The transcript starts at the exact total."""
        self._total = departed + sum(entry.base for entry in entries)
        self._draw()
        self._announce()
        while self._count >= self._threshold and not self._end_phase():
            pass  # noise below -threshold ends a phase before its first crossing

    def join(self, entry: Entry) -> None:
        """What the newcomer brings is known exactly."""
        self._total += entry.base
        self._announce()

    def late(self, entry: Entry, before: int, gain: int) -> Consequence | None:
        """So is what a silent site counted before it adopted its pace."""
        self._total += gain
        self._announce()
        return None

    def hear(self, entry: Entry, before: int, crossings: int) -> Consequence | None:
        """One crossing after the other; a threshold at or below the count ends a phase, also at its very start."""
        while True:
            taken = min(crossings, max(0, self._threshold - self._count))
            self._count += taken
            crossings -= taken
            if self._count < self._threshold:
                break
            if self._end_phase():
                return OVER
            if not crossings and self._count < self._threshold:
                break
        return OVER if entry.crossings >= self._plan.cap else None

    def _end_phase(self) -> bool:
        """Publish, and draw the next threshold; True if that was the last phase."""
        self._phase += 1
        if self._phase >= self._plan.phases:
            return True
        self._published = self._sums.add(self._count)
        self._count = 0
        self._draw()
        self._announce()
        return False

    def _draw(self) -> None:
        self._threshold = self._plan.threshold + self._noise.laplace(self._plan.threshold_scale)

    def _announce(self) -> None:
        self.estimate: int = self._total + self._pace.step * (self._published + self._plan.offset)


class PartialDP(Calibrated[PartialDPPlan]):
    """The paper: report once in each block; publish, at the end of noisy phases, differentially private sums.

    Two calibrations. `proven` (the default) has constants that prove the guarantee. `paper` has the paper's own, for
    comparison. With either, `deterministic` is cheaper below many thousands of sites: see docs/theory/partial-dp.md.

    Formal guarantees: `proven`, with probability 1 - delta within 1 ± alpha at every moment, against every adaptive
    adversary that sees the answers and nothing else. `paper`: what the paper states, with the open points settled.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=16, alpha=0.05, scheme="partial_dp", seed=1)
    >>> for i in range(50_000): tracker.site(i % 16).add()
    >>> tracker.answer.lower <= 50_000 <= tracker.answer.upper
    True

    References: Xiong, Zhu, Huang (NeurIPS 2023); docs/theory/partial-dp.md.
    """

    name = "partial_dp"
    safe_against = "adaptive"

    def __init__(
        self,
        plan: PartialDPPlan | None = None,
        *,
        calibration: str = "proven",
        noise: Noise | None = None,
        patient: bool = True,
    ) -> None:
        super().__init__(plan, patient=patient)
        if calibration not in CALIBRATIONS:
            raise UnknownName("calibration", calibration, CALIBRATIONS)
        self._calibration = calibration
        self._noise = noise  # None: exact noise from the coordinator's own dice

    def books(self) -> list[PlanBook[PartialDPPlan]]:
        """One plan for a number of sites."""
        return [BOOKS[self._calibration]]

    def publisher(self, plan: PartialDPPlan, step: int, case: Case, dice: Dice) -> Publisher:
        """Start the phases."""
        return NoisyPhases(plan, step, self._noise or DiceNoise(dice.split("noise")))


def _book(calibration: str) -> PlanBook[PartialDPPlan]:
    return PlanBook(lambda sites, alpha, eta: plan_partial_dp(sites, alpha, eta, calibration))


BOOKS = {calibration: _book(calibration) for calibration in CALIBRATIONS}
