"""Every run of small families, on a network that loses, repeats and reorders, with joins, departures and kills.

`World` (tests/support/family_world.py) lists what is checked. The search must find each of the mutants.
"""

from collections.abc import Iterable

import pytest

from countless.core.family.answer import LabelCount
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.messages import DownMessage, FamilyEntry, Outbox, Resend, SetSteps, Totals, UpMessage
from countless.core.family.site import FamilySite
from countless.core.messages import SiteId
from support.family_world import Case, World, search

pytestmark = pytest.mark.slow

CASES = {
    "one site": Case(joins=0, adds=3, batches=(1, 5), labels=("a", "b")),
    "joins": Case(adds=3),
    "lost": Case(adds=2, losses=1, batches=(5,)),
    "repeated": Case(adds=2, repeats=1, batches=(5,)),
    "overtaken": Case(adds=3, overtakes=1, batches=(5,)),
    "left": Case(adds=2, leaves=1, batches=(5,)),
    "left, repeated": Case(joins=0, adds=2, leaves=1, repeats=1, batches=(5,)),
    "left, lost": Case(joins=0, adds=3, leaves=1, losses=2, batches=(4,)),
    "ended": Case(adds=2, ends=1, overtakes=1, batches=(5,)),
    "timed out": Case(adds=2, timeouts=1, batches=(5,)),
    "killed": Case(adds=2, kills=1, batches=(5,)),
    "restored": Case(joins=0, adds=3, restores=1, batches=(5,)),
    "capped": Case(joins=0, adds=4, labels=("a", "b"), cap=1, batches=(3,)),
}


GROWS_MEANWHILE = Case(joins=2, adds=2, batches=(5, 50))  # while lower steps are awaited
LONGER_CASES = {
    "two joins": Case(joins=2, adds=2, batches=(5,)),
    "grows meanwhile": GROWS_MEANWHILE,
    "restored, joins": Case(adds=2, restores=1, batches=(5,)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_run_of_a_small_family_keeps_every_promise(name: str) -> None:
    check_every_run(CASES[name])


@pytest.mark.soak
@pytest.mark.parametrize("name", LONGER_CASES)
def test_every_run_of_a_larger_family_keeps_every_promise(name: str) -> None:
    check_every_run(LONGER_CASES[name])


def check_every_run(case: Case) -> None:
    found = search(World(case, FamilyCoordinator if case.timeouts or case.restores else AlwaysWithin))
    assert found.broken is None, f"{found.broken}, after {found.run}"
    assert found.states > 50


class KeepsWhatHasGrown(FamilySite):
    """A site that gets a lower step does not report the labels that have grown by it."""

    __slots__ = ()

    def _start_round(self) -> tuple[UpMessage, ...]:
        return ()


class TakesEarlierRounds(FamilySite):
    """Steps of an earlier round, which were overtaken, are adopted."""

    __slots__ = ()

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        if isinstance(message, SetSteps) and message.round < self.round:
            self.round = message.round - 1
        return super().receive(message)


class ConfirmsOnlyLowering(FamilySite):
    """A site confirms only steps that are lower than its own: the coordinator may count with higher ones."""

    __slots__ = ()

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        if isinstance(message, SetSteps) and self.steps.at_least(message.steps) == message.steps:
            message = message._replace(confirm=False)
        return super().receive(message)


class LowersAtOnce(FamilyCoordinator):
    """Lowered steps count when they are sent."""

    def _tell(self, site_id: SiteId, confirm: bool = False) -> tuple[SiteId, DownMessage]:
        told = super()._tell(site_id, confirm)
        self._set_steps(self._members[site_id], self.steps)
        return told


class RaisesLate(FamilyCoordinator):
    """Raised steps count when a message shows that they are in force."""

    def _tell(self, site_id: SiteId, confirm: bool = False) -> tuple[SiteId, DownMessage]:
        steps = self._members[site_id].steps
        told = super()._tell(site_id, confirm)
        self._set_steps(self._members[site_id], steps)
        return told


class AlwaysWithin(FamilyCoordinator):
    """No mutant. If no site times out, the width is within its bound also while lower steps are awaited."""

    def check(self) -> None:
        super().check()
        self._check_width()


class TellsAllAtOnce(AlwaysWithin):
    """A new site gets its steps before the others have confirmed lower ones."""

    def _proceed(self) -> Outbox:
        outbox = super()._proceed()
        return outbox + [self._tell(site_id) for site_id in list(self._untold)]


class AsksOnlyForLowerSteps(FamilyCoordinator):
    """A round that begins while another is confirmed, and whose steps are not lower, is never confirmed."""

    def _proceed(self) -> Outbox:
        for site_id in self._untold.keys() & self._awaiting.keys():
            if self._members[site_id].steps.at_least(self.steps) == self.steps:
                del self._untold[site_id]
        return super()._proceed()


class KeepsItsRound(FamilyCoordinator):
    """After a restore, a round that a site has been told before may be begun again, with other steps."""

    def join(self, site_id: SiteId, sync: Totals) -> Outbox:
        return super().join(site_id, sync._replace(round=min(sync.round, self.round - 1)))


class ForgetsWhoLeft(FamilyCoordinator):
    """A late message of a site that left makes it a member again."""

    def join(self, site_id: SiteId, sync: Totals) -> Outbox:
        self._departed.clear()
        return super().join(site_id, sync)


class AddsReports(FamilyCoordinator):
    """Counts are added, not merged by maximum."""

    def _merge(self, member: FamilyEntry, counts: Iterable[tuple[str, int]]) -> None:
        super()._merge(member, [(label, member.counts.get(label, 0) + count) for label, count in counts])


class IgnoresLostReports(FamilyCoordinator):
    """A Totals is believed without a look at the sum of the reports."""

    def _receive(self, site_id: SiteId, member: FamilyEntry, message: UpMessage) -> Outbox:
        return [each for each in super()._receive(site_id, member, message) if not isinstance(each[1], Resend)]


class LetsGoEarly(FamilyCoordinator):
    """A site departs although a report of it was lost."""

    def leave(self, site_id: SiteId, sync: Totals) -> Outbox:
        if site_id in self._members:
            self._members[site_id].reported = sync.reported
        return super().leave(site_id, sync)

    def check(self) -> None:
        pass


class NeverLowers(FamilyCoordinator):
    """A site that joins beyond the slots gets the present steps."""

    def _make_room(self) -> None:
        pass


class IgnoresOverflow(FamilyCoordinator):
    """The upper bound of a label leaves out the overflow, where its events may be."""

    def answer(self, label: str) -> LabelCount:
        return self._interval(label, self._counts.get(label, 0), self._held_back.label, 0)


MUTANTS: dict[str, tuple[Case, type[FamilyCoordinator], type[FamilySite]]] = {
    "keeps what has grown": (Case(adds=3, batches=(1, 9)), FamilyCoordinator, KeepsWhatHasGrown),
    "takes earlier rounds": (Case(adds=3, overtakes=1, batches=(5,)), FamilyCoordinator, TakesEarlierRounds),
    "confirms only lowering": (LONGER_CASES["two joins"], FamilyCoordinator, ConfirmsOnlyLowering),
    "lowers at once": (Case(adds=2, batches=(5,)), LowersAtOnce, FamilySite),
    "raises late": (Case(joins=0, adds=2, batches=(5,)), RaisesLate, FamilySite),
    "tells all at once": (Case(adds=2, batches=(5,)), TellsAllAtOnce, FamilySite),
    "asks only for lower steps": (GROWS_MEANWHILE, AsksOnlyForLowerSteps, FamilySite),
    "keeps its round": (CASES["restored"], KeepsItsRound, FamilySite),
    "forgets who left": (Case(adds=2, leaves=1, repeats=1, batches=(5,)), ForgetsWhoLeft, FamilySite),
    "adds reports": (Case(joins=0, adds=2, repeats=1, batches=(5,)), AddsReports, FamilySite),
    "ignores lost reports": (Case(joins=0, adds=2, losses=1, batches=(5,)), IgnoresLostReports, FamilySite),
    "lets go early": (CASES["left, lost"], LetsGoEarly, FamilySite),
    "never lowers": (Case(adds=2, batches=(5,)), NeverLowers, FamilySite),
    "ignores overflow": (CASES["capped"], IgnoresOverflow, FamilySite),
}


LONG = "asks only for lower steps"


@pytest.mark.parametrize(
    "name", [pytest.param(LONG, marks=pytest.mark.soak), *(name for name in MUTANTS if name != LONG)]
)
def test_search_finds_the_mutant(name: str) -> None:
    case, coordinator, site = MUTANTS[name]
    found = search(World(case, coordinator, site))
    assert found.broken is not None, f"{found.states} states without a fault"
