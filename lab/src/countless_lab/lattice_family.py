"""The lattice family: fewer messages, for traffic that does not react to the answers.

A site reports a label at multiples of the step, shifted by a random offset, and each report credits the label with a
step of events. The errors of the sites are independent, so they grow with the square root of the number of sites only.
An adversary that sees the answers can stop each site just after its report, and add up all errors.

>>> family = LatticeFamily(sites=10, epsilon=0.05, seed=1)
>>> for i in range(100_000):
...     family.site(i % 10).add("alice" if i % 4 else f"guest-{i}")
>>> family.answer("alice").contains(75_000), family.messages.total < 3_000
(True, True)
"""

from collections.abc import Callable, Iterable
from math import ceil, floor, inf, isqrt, log, sqrt
from time import time
from typing import Literal

from countless.core.calendar import Per
from countless.core.family.answer import LabelCount
from countless.core.family.coordinator import MAX_LABELS, FamilyCoordinator
from countless.core.family.messages import FamilyEntry, LabelReport, Outbox, Steps, Totals, UpMessage
from countless.core.family.rule import require_epsilon
from countless.core.family.site import LABEL_CAP, FamilySite
from countless.core.messages import SiteId, SiteName
from countless.core.parameters import require_probability
from countless.core.random_source import RandomSource
from countless.errors import InvariantBroken
from countless.inprocess.family import Family
from countless.randomness import SeededRandom, SystemRandom

FamilyScheme = Literal["deterministic", "lattice"]
_UNDRAWN = -1


class LatticeSteps:
    """Steps for `LatticeSite`: an interval leaves out the truth with probability delta, at most, at any one moment.

    `spent` is the sum of step^2 over all sites and rounds: by Hoeffding's inequality an error of a label above
    sqrt(spent * log(2/delta) / 2) has a probability of at most delta. The error of the total is a sum of uniform
    variables, of this round only, with a third of the variance.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        require_epsilon(epsilon)
        require_probability("delta", delta)
        self.epsilon = epsilon
        self.nats = log(2 / delta)
        self.spent = 0

    def _left(self, known: int) -> int:
        return max(0, int(2 * (self.epsilon * known) ** 2 / self.nats) - self.spent)

    def afford(self, known: int, step: int) -> bool:
        """True if one more site may have this step; if so, it is spent."""
        may = step**2 <= self._left(known)
        self.spent += may * step**2
        return may

    def steps(self, known: int, sites: int) -> Steps:
        label = isqrt(self._left(known) // sites)
        if label < 2:
            return Steps()
        self.spent += sites * label**2
        total = isqrt(int(6 * (self.epsilon * known) ** 2 / self.nats) // sites)
        return Steps(label, total - (total % 2 == 0), 1 + known // (2 * sites))

    def raise_at(self, steps: Steps, sites: int) -> int:
        """Twice the total of this round; the total for a step of 2 in the first one."""
        if steps.label == 1:
            return int(sqrt((self.spent + 4 * sites) * self.nats / 2) / self.epsilon) + 1
        return 4 * (steps.exact - 1) * sites

    @property
    def radius(self) -> float:
        return sqrt(self.spent * self.nats / 2)

    def total_radius(self, squares: int) -> float:
        """For sites whose steps have this sum of squares."""
        return sqrt(squares * self.nats / 6)


class LatticeSite(FamilySite):
    """A site that reports a label at multiples of the step, shifted by a random offset for each label and round.

    Each report credits the label with `steps.label` events more, so what is reported is the count on average.
    """

    __slots__ = ("_estimate", "_rng", "_since_sync")

    def __init__(self, family: str, rng: RandomSource, *, cap: int = LABEL_CAP) -> None:
        super().__init__(family, cap=cap)
        self._rng = rng
        self._estimate = 0  # of the total, as the coordinator is to know it
        self._since_sync = 0

    def resume(self) -> tuple[UpMessage, ...]:
        return self.sync(), *self._reports([])

    def sync(self) -> Totals:
        self._since_sync = 0
        return Totals(self.family, self.round, self.steps, self.total, self.reported)

    def leave(self) -> tuple[UpMessage, ...]:
        return (self.sync(),)

    def _count(self, label: str, n: int) -> tuple[UpMessage, ...]:
        step, pending = self.steps.label, self._pending.get(label, _UNDRAWN)
        crossings, self._pending[label] = divmod(
            (self._rng.randbelow(step) if pending == _UNDRAWN else pending) + n, step
        )
        total_crossings, self._pending_total = divmod(self._pending_total + n, self.steps.total)
        self._estimate += total_crossings * self.steps.total
        self._since_sync += n
        messages: tuple[UpMessage, ...] = ()
        if crossings:
            self._credit(label, crossings * step)
            messages = self._reports([label])
        elif total_crossings:
            messages = self._reports([])
        return (*messages, self.sync()) if self._since_sync >= self.steps.exact > 0 else messages

    def _start_round(self) -> tuple[UpMessage, ...]:
        """New offsets. From its first point on, the estimate of the total is right on average."""
        self._pending = dict.fromkeys(self._pending, _UNDRAWN)
        self._pending_total = self._rng.randbelow(self.steps.total)
        self._estimate = self.total - self._pending_total + (self.steps.total - 1) // 2
        return self._reports([])

    def _report(self, labels: list[str]) -> tuple[LabelReport, ...]:
        return self._reports(labels)

    def _reports(self, labels: list[str]) -> tuple[LabelReport, ...]:
        reports = super()._reports(labels)
        return reports or (LabelReport(self.family, self.round, (), self._estimate),)

    @property
    def _reported_total(self) -> int:
        return self._estimate


class LatticeCoordinator(FamilyCoordinator):
    """The coordinator of `LatticeSite`s. It keeps no state for a restart.

    Only exact totals decide on rounds, which are in each `Totals` and in reports of round 0. So rounds do not depend on
    offsets. A site that joins beyond the slots of a round reports every event until there is room for its errors.
    """

    rule: LatticeSteps
    _least_total = -inf  # the estimate of an idle site may be negative

    def __init__(self, family: str, rule: LatticeSteps, *, fleet: Iterable[SiteId] = (), cap: int = MAX_LABELS) -> None:
        self._exact_total = 0
        self._told = 0  # sites that were sent the steps of this round
        self._lost_squares = 0  # of the steps of sites that were given up
        super().__init__(family, rule, fleet=fleet, cap=cap)

    def total(self) -> LabelCount:
        squares = sum(each.steps.total**2 for each in self._members.values() if each.steps.total > 1)
        return self._around(None, self._total, self.rule.total_radius(squares + self._lost_squares))

    def _interval(self, label: str | None, known: int, held_back: int, overflow: int) -> LabelCount:
        answer = self._around(label, known, self.rule.radius)
        return answer._replace(upper=answer.upper + (floor(overflow + self.rule.radius) if overflow else 0))

    def _around(self, label: str | None, known: int, radius: float) -> LabelCount:
        return LabelCount(label, known, max(0, ceil(known - radius)), floor(known + radius))

    @property
    def _known_total(self) -> int:
        return self._exact_total

    def leave(self, site_id: SiteId, sync: Totals) -> Outbox:
        member, lost_squares = self._members.get(site_id), self._lost_squares
        outbox = super().leave(site_id, sync)
        if member is not None and site_id not in self._members:
            self._estimate_total(member, sync.total)
            self._lost_squares = lost_squares
        return outbox

    def _remove(self, site_id: SiteId, member: FamilyEntry) -> None:
        self._lost_squares += member.steps.total**2 if member.steps.total > 1 else 0
        super()._remove(site_id, member)

    def _merge_total(self, member: FamilyEntry, message: UpMessage) -> None:
        if isinstance(message, LabelReport) and (message.round, message.total) > (member.round, member.total):
            member.round = message.round
            self._estimate_total(member, message.total)
        if isinstance(message, Totals) or message.round == 0:
            self._exact_total += max(0, message.total - member.exact)
            member.exact = max(message.total, member.exact)

    def _estimate_total(self, member: FamilyEntry, total: int) -> None:
        self._total += total - member.total
        member.total = total

    def _make_room(self) -> None:
        pass

    def _renumber(self, number: int) -> None:
        self._told = 0
        super()._renumber(number)

    def _may_tell(self) -> bool:
        may = self._told < self._slots or self.rule.afford(self._known_total, self.steps.label)
        self._told += may
        return may

    def _check_width(self) -> None:
        radius = max(self.rule.radius, self.total().upper - self._total)
        if radius > self.rule.epsilon * self._known_total:
            raise InvariantBroken(f"the radius is {radius} at a known total of {self._known_total}")


class LatticeFamily(Family):
    """`Family` with lattices. The interval of a label holds at any one moment with probability 1 - delta, if the
    traffic does not react to the answers. The last window is not exact.
    """

    def __init__(
        self,
        sites: int | Iterable[SiteName] = 10,
        epsilon: float = 0.01,
        *,
        delta: float = 0.05,
        seed: int | None = None,
        per: Per | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._delta = delta
        self._rng: RandomSource = SystemRandom() if seed is None else SeededRandom(seed)
        super().__init__(sites, epsilon, per=per, clock=clock)

    def _new_site(self, site_id: SiteId) -> FamilySite:
        return LatticeSite(self.name, self._rng.spawn("site", *site_id), cap=self._label_cap)

    def _new_coordinator(self, fleet: list[SiteId]) -> FamilyCoordinator:
        return LatticeCoordinator(self.name, LatticeSteps(self._epsilon, self._delta), fleet=fleet)


def new_family(scheme: FamilyScheme, sites: int, epsilon: float, seed: int) -> Family:
    """`deterministic` draws nothing from the seed."""
    return LatticeFamily(sites, epsilon, seed=seed) if scheme == "lattice" else Family(sites, epsilon)
