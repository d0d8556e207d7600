"""Every run of small budgets whose coordinator continues from an older copy of its state, as after `--after-restore`.

A copy of the saved state is made at any moment. At any later one the coordinator is killed and continues from the copy:
all connections are lost, and each site that has asked before connects and asks again. The phase ends when all of them
have. No site leaves or ends between the copy and the kill: that is what the theorem assumes.
"""

from collections.abc import Iterator

import pytest

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.holders import Holder
from countless.core.budget.messages import Ask, Outbox
from countless.core.budget.state import PersistentBudget
from countless.core.messages import SiteId
from support.budget_world import IDS, Action, Broken, Case, Key, World, search

pytestmark = pytest.mark.slow


class RestoredWorld(World):
    ends_early = False  # a mutant: the phase ends when the sites of the copy have asked

    def __init__(self, case: Case, coordinator: type[BudgetCoordinator] = BudgetCoordinator) -> None:
        super().__init__(case, coordinator)
        self.copy: PersistentBudget | None = None
        self.restored = False

    def freeze(self) -> Key:
        coordinator = self.coordinator
        return super().freeze(), self.copy, self.restored, coordinator.restoring, tuple(coordinator._unheard)

    @classmethod
    def thaw(cls, origin: World, key: Key) -> World:
        inner, copy, restored, restoring, unheard = key
        world = super().thaw(origin, inner)
        assert isinstance(world, RestoredWorld)
        world.copy, world.restored = copy, restored
        world.coordinator.restoring, world.coordinator._unheard = restoring, dict.fromkeys(unheard)
        return world

    @property
    def forgotten(self) -> bool:
        """Whether what happens now will not be known after the restore."""
        return self.copy is not None and not self.restored

    def actions(self) -> Iterator[Action]:
        for action in super().actions():
            if action[0] not in ("leave", "end") or not (self.forgotten or self._unheard(action[1])):
                yield action
        if self.copy is None:
            yield ("copy",)
        elif not self.restored:
            yield ("restore",)
        if self.coordinator.restoring and not self.coordinator.unheard and (self.ends_early or self._all_answered):
            yield ("end restore",)

    def _unheard(self, number: int) -> bool:
        holder = self.coordinator._holders.get(IDS[number])
        return self.sites[number].seq > 0 and not self.ended[number] and (holder is None or not holder.seq)

    @property
    def _all_answered(self) -> bool:
        return not any(map(self._unheard, range(len(self.sites))))

    def _copy(self) -> None:
        self.copy = self.saved

    def _restore(self) -> None:
        self.restored = True
        self.coordinator = self.new_coordinator(self.copy)
        self.coordinator.restore()
        self.save()
        self.lose_connections()

    def _end_restore(self) -> None:
        self._send(self.coordinator.end_restore())

    def check(self) -> None:
        if not self.restored:
            super().check()
        elif (admitted := self.used) > self.case.limit:
            raise Broken(f"{admitted} units admitted, the limit is {self.case.limit}")

    def check_when_quiet(self) -> None:
        """Once all sites have asked, the limit can be spent, and requests are decided."""
        if self.coordinator.restoring:
            self._heal()
            self._end_restore()
            self.deliver_all()
        super().check_when_quiet()


CASE = Case(sites=2, limit=4, weights=(1, 3), requests=2)
SMALL = Case(sites=2, limit=2, requests=2)
CASES = {
    "lent": CASE,
    "holds": SMALL._replace(holds=1),
    "lost": SMALL._replace(losses=1),
    "timed out": SMALL._replace(timeouts=1),
    "left": SMALL._replace(requests=1, leaves=1),
    "ended": SMALL._replace(requests=1, ends=1),
}
LARGE_CASES = {
    "three sites": CASE._replace(sites=3),
    "three requests": CASE._replace(requests=3),
    "holds": CASE._replace(holds=1),
    "lost": CASE._replace(losses=1),
    "timed out": CASE._replace(timeouts=1),
    "left": CASE._replace(leaves=1),
    "ended": CASE._replace(ends=1),
}


@pytest.mark.parametrize("name", CASES)
def test_every_run_with_a_restore_stays_within_the_limit(name: str) -> None:
    found = search(RestoredWorld(CASES[name]))
    assert found.broken is None, f"{found.broken}, after {found.run}"
    assert found.states > 100


@pytest.mark.soak
@pytest.mark.parametrize("name", LARGE_CASES)
def test_every_larger_run_with_a_restore_stays_within_the_limit(name: str) -> None:
    found = search(RestoredWorld(LARGE_CASES[name]))
    assert found.broken is None, f"{found.broken}, after {found.run}"


class Recovers(BudgetCoordinator):
    """Started without --after-restore."""

    def restore(self) -> None:
        self.recover()


class BelievesTheCopy(BudgetCoordinator):
    """The limits are those of the copy."""

    def _note(self, site_id: SiteId, holder: Holder, ask: Ask) -> Outbox:
        if self.restoring and site_id in self._unheard:
            ask = ask._replace(granted=holder.granted, returned=holder.returned)
        return super()._note(site_id, holder, ask)


class GrantsMeanwhile(BudgetCoordinator):
    """What is free by the copy is granted."""

    def _proceed(self) -> Outbox:
        restoring, self.restoring = self.restoring, False
        outbox = super()._proceed()
        self.restoring = restoring
        return outbox


@pytest.mark.parametrize("mutant", [Recovers, BelievesTheCopy, GrantsMeanwhile])
def test_search_finds_mistakes(mutant: type[BudgetCoordinator]) -> None:
    assert search(RestoredWorld(CASE._replace(timeouts=1), mutant)).broken


def test_search_finds_a_phase_that_does_not_wait_for_unknown_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RestoredWorld, "ends_early", True)
    assert search(RestoredWorld(CASE)).broken
