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
from countless.core.budget.state import PersistentState
from countless.core.messages import SiteId
from countless.errors import ProtocolError
from support.budget_world import BUDGET, IDS, Action, Broken, Case, Key, World, search

pytestmark = pytest.mark.slow


class RestoredWorld(World):
    ends_early = False  # a mutant: the phase ends when the sites of the copy have asked

    def __init__(self, case: Case, coordinator: type[BudgetCoordinator] = BudgetCoordinator) -> None:
        super().__init__(case, coordinator)
        self.copy: PersistentState | None = None
        self.restored = False

    def freeze(self) -> Key:
        coordinator = self.coordinator
        return super().freeze(), self.copy, self.restored, coordinator._restoring, tuple(coordinator._unheard)

    @classmethod
    def thaw(cls, origin: World, key: Key) -> World:
        inner, copy, restored, restoring, unheard = key
        world = super().thaw(origin, inner)
        assert isinstance(world, RestoredWorld)
        world.copy, world.restored = copy, restored
        world.coordinator._restoring, world.coordinator._unheard = restoring, dict.fromkeys(unheard)
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

    def do(self, action: Action) -> None:
        try:
            super().do(action)
        except ProtocolError as error:
            raise Broken(f"an honest site has broken the protocol: {error}") from error

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
        self.coordinator = self.coordinator_class(BUDGET, 1, slack=self.case.slack, saved_state=self.copy)
        self.coordinator.restore()
        self.saved = self.coordinator.saved_state
        for number, site in enumerate(self.sites):
            gone = self.ended[number] or not site.seq
            self.down[number], self.up[number] = (), self.up[number] if gone else (site.resend(),)

    def _end_restore(self) -> None:
        self._send(self.coordinator.end_restore())

    def _check(self) -> None:
        if not self.restored:
            super()._check()
        elif (admitted := sum(site.used for site in self.sites)) > self.case.limit:
            raise Broken(f"{admitted} units admitted, the limit is {self.case.limit}")

    def check_when_quiet(self) -> None:
        """Once all sites have asked, the limit can be spent, and requests are decided."""
        if self.coordinator.restoring:
            self._end_restore()
            self._heal()
        super().check_when_quiet()


CASES = {
    "two sites": Case(sites=2, limit=2, requests=3),
    "three sites": Case(sites=3, limit=2, requests=2),
    "holds": Case(sites=2, limit=2, requests=2, holds=1),
    "lost": Case(sites=2, limit=2, requests=2, losses=1),
    "timed out": Case(sites=2, limit=2, requests=2, timeouts=1),
    "left": Case(sites=2, limit=2, requests=2, leaves=1),
    "ended": Case(sites=2, limit=2, requests=2, ends=1),
}
LARGE_CASES = {
    "weights": Case(sites=2, limit=3, requests=3, weights=(1, 2)),
    "three sites": Case(sites=3, limit=2, requests=3),
    "holds": Case(sites=2, limit=2, requests=3, holds=1),
    "lost": Case(sites=2, limit=2, requests=3, losses=1),
    "left": Case(sites=2, limit=2, requests=3, leaves=1),
}


@pytest.mark.parametrize("name", CASES)
def test_every_run_with_a_restore_stays_within_the_limit(name: str) -> None:
    found = search(RestoredWorld(CASES[name]))
    assert found.broken is None, f"{found.broken}, after {found.run}"
    assert found.states > 1000


@pytest.mark.soak
@pytest.mark.parametrize("name", LARGE_CASES)
def test_every_larger_run_with_a_restore_stays_within_the_limit(name: str) -> None:
    found = search(RestoredWorld(LARGE_CASES[name]))
    assert found.broken is None, f"{found.broken}, after {found.run}"


class Recovers(BudgetCoordinator):
    """Started without --after-restore."""

    def restore(self) -> None:
        self.round += 1


class BelievesTheCopy(BudgetCoordinator):
    """The limits are those of the copy."""

    def _believe(self, site_id: SiteId, holder: Holder, ask: Ask) -> Outbox:
        return super()._believe(site_id, holder, ask._replace(limit=holder.limit))


class GrantsMeanwhile(BudgetCoordinator):
    """What is free by the copy is granted."""

    def _proceed(self) -> Outbox:
        restoring, self._restoring = self._restoring, False
        outbox = super()._proceed()
        self._restoring = restoring
        return outbox

    def _believe(self, site_id: SiteId, holder: Holder, ask: Ask) -> Outbox:
        super()._believe(site_id, holder, ask)
        if ask.want:
            self._waiting[site_id] = None
        return self._proceed()


@pytest.mark.parametrize("mutant", [Recovers, BelievesTheCopy, GrantsMeanwhile])
def test_search_finds_mistakes(mutant: type[BudgetCoordinator]) -> None:
    assert search(RestoredWorld(CASES["two sites"]._replace(timeouts=1), mutant)).broken


def test_search_finds_a_phase_that_does_not_wait_for_unknown_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RestoredWorld, "ends_early", True)
    assert search(RestoredWorld(CASES["two sites"])).broken
