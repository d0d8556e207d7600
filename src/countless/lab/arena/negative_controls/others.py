"""More strawmen (SPEC 7): a poll, a classical calibration, and a tracker that leaks its message count."""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

from countless.core.estimator import Case, Consequence, Opening, Publisher, Scheme, Stay
from countless.core.ledger import Entry
from countless.core.random_source import Dice
from countless.core.triggers import Growth, Pace
from countless.planning.dithered import DitheredPlan
from countless.planning.oblivious import ObliviousPlan
from countless.schemes.dithered import Dithered, Phases
from countless.schemes.hyz import Hyz


class _Poll(Publisher):
    def __init__(self, alpha: float) -> None:
        self._pace = Growth(alpha)
        self._sites = 0

    def pace(self, slot: int) -> Pace:
        return self._pace

    def open(self, entries: Sequence[Entry], departed: int) -> None:
        self._sites = len(entries)
        self.estimate = self._sites * next((entry.base for entry in entries if not entry.slot), 0)

    def hear(self, entry: Entry, before: int, crossings: int) -> Consequence | None:
        if entry.slot == 0:
            self.estimate = self._sites * entry.known
        return None

    def join(self, entry: Entry) -> None:
        self._sites += 1


class Pollster(Scheme):
    """Asks the first site and multiplies by the number of sites."""

    name = "pollster"
    safe_against = "oblivious"

    def open(self, case: Case, dice: Dice) -> Opening | Stay:
        """One round, for ever."""
        return Opening(self.name, _Poll(case.alpha))


class HyzClassical(Hyz):
    """`hyz` with the calibration it is quoted with in the literature: right at any one moment with probability 3/4.

    By Chebyshev: the standard deviation of the error is at most sqrt(k) steps, and two of them are
    allowed. It promises nothing about all moments together, which is what `hyz` itself pays for.
    """

    name = "hyz-classical"

    def plans(self, case: Case, patient: bool) -> list[ObliviousPlan]:
        """Two standard deviations."""
        return [replace(plan, allowance=2 * sqrt(case.sites)) for plan in super().plans(case, patient)]


class _Telltale(Phases):
    """Every report shows in the last digits of the answer."""

    def __init__(self, plan: DitheredPlan, step: int, dice: Dice) -> None:
        super().__init__(plan, step, dice)
        self._heard = 0

    def hear(self, entry: Entry, before: int, crossings: int) -> Consequence | None:
        consequence = super().hear(entry, before, crossings)
        self._heard += crossings
        self._announce()
        self.estimate += self._heard / 2**20
        return consequence

    def _announce(self) -> None:
        if self._phase < len(self._plan.phases):
            super()._announce()


class Leaking(Dithered):
    """`dithered`, but the number of reports shows in the last digits of the answer: harmless rounding, one
    might think.
    """

    name = "leaking"

    def publisher(self, plan: DitheredPlan, step: int, case: Case, dice: Dice) -> Publisher:
        """Draw the secrets, and give them away."""
        return _Telltale(plan, step, dice)
