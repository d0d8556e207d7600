"""Every run of small budgets, on a network that loses, repeats and reorders, with kills between any two steps.

`World` (tests/support/budget_world.py) lists what is checked. The mutants are mistakes that were made in drafts of the
protocol: the search must find each of them.
"""

import pytest

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.holders import CURRENT, MISSED, RECALLED
from countless.core.budget.messages import Ask, Exhausted, Outbox
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from support.budget_world import Action, Case, World, search

pytestmark = pytest.mark.slow

CASES = {
    "weights": Case(sites=2, limit=3, requests=4, weights=(1, 2)),
    "slack": Case(sites=2, limit=10, slack=0.2, requests=3, weights=(2, 5)),
    "holds": Case(sites=2, limit=2, requests=3, holds=1),
    "lost": Case(sites=2, limit=2, requests=3, losses=2),
    "repeated": Case(sites=2, limit=2, requests=3, repeats=2),
    "overtaken": Case(sites=2, limit=2, requests=3, overtakes=2, reconnects=1),
    "killed": Case(sites=2, limit=2, requests=3, kills=1),
    "left": Case(sites=2, limit=2, requests=3, leaves=1, repeats=1),
    "ended": Case(sites=2, limit=2, requests=3, ends=1, overtakes=1),
    "timed out": Case(sites=2, limit=2, requests=3, timeouts=1, losses=1),
    "raised": Case(sites=2, limit=2, requests=3, limits=(3,), losses=1),
    "lowered": Case(sites=2, limit=2, requests=3, limits=(1, 2), overtakes=1),
    "reset": Case(sites=2, limit=2, requests=4, resets=1, losses=1),
}
LARGE_CASES = {
    "three sites": Case(sites=3, limit=2, requests=4),
    "limit 4": Case(sites=2, limit=4, requests=3, weights=(1, 3)),
    "holds lost": Case(sites=2, limit=2, requests=3, holds=1, losses=1),
    "three sites overtaken": Case(sites=3, limit=2, requests=3, overtakes=1),
    "killed, overtaken": Case(sites=2, limit=2, requests=3, kills=1, overtakes=1),
    "killed, lost": Case(sites=2, limit=2, requests=3, kills=1, losses=1),
    "left, killed": Case(sites=2, limit=2, requests=3, leaves=1, kills=1),
    "timed out with holds": Case(sites=2, limit=2, requests=3, timeouts=1, holds=1),
    "reset, killed": Case(sites=2, limit=2, requests=3, resets=1, kills=1),
    "reset, holds": Case(sites=2, limit=2, requests=3, resets=1, holds=1),
    "three sites, weights": Case(sites=3, limit=3, requests=4, weights=(1, 2)),
    "three sites, limit 4": Case(sites=3, limit=4, requests=4, weights=(1, 3)),
    "three sites, holds": Case(sites=3, limit=3, requests=4, holds=2),
    "three sites, killed": Case(sites=3, limit=2, requests=3, kills=1),
    "three sites, lost, repeated": Case(sites=3, limit=2, requests=4, losses=1, repeats=1),
    "three sites, left": Case(sites=3, limit=2, requests=3, leaves=1, overtakes=1),
    "three sites, timed out": Case(sites=3, limit=2, requests=3, timeouts=1, holds=1),
    "holds, weights": Case(sites=2, limit=3, requests=3, holds=2, weights=(1, 2)),
    "holds, weights, lost": Case(sites=2, limit=3, requests=3, holds=2, losses=1, weights=(1, 2)),
    "holds, killed": Case(sites=2, limit=2, requests=3, holds=2, kills=1),
    "holds, left": Case(sites=2, limit=3, requests=3, holds=1, leaves=1, weights=(1, 2)),
    "holds, ended": Case(sites=2, limit=3, requests=3, holds=1, ends=1, weights=(1, 2)),
    "killed twice": Case(sites=2, limit=2, requests=3, kills=2),
    "killed, repeated, overtaken": Case(sites=2, limit=2, requests=3, kills=1, repeats=1, overtakes=2),
    "killed, lost, repeated": Case(sites=2, limit=2, requests=3, kills=1, losses=1, repeats=1),
    "reset, timed out": Case(sites=2, limit=2, requests=4, resets=2, timeouts=1, losses=1),
    "reset, left": Case(sites=2, limit=2, requests=4, resets=2, leaves=1, ends=1),
    "raised and lowered": Case(sites=2, limit=3, requests=3, limits=(1, 3), weights=(1, 2), kills=1),
}


@pytest.mark.parametrize("name", CASES)
def test_every_run_of_a_small_budget_keeps_every_promise(name: str) -> None:
    found = search(World(CASES[name]))
    assert found.broken is None, f"{found.broken}, after {found.run}"
    assert found.states > 100


@pytest.mark.soak
@pytest.mark.parametrize("name", LARGE_CASES)
def test_every_run_of_a_larger_budget_keeps_every_promise(name: str) -> None:
    found = search(World(LARGE_CASES[name]))
    assert found.broken is None, f"{found.broken}, after {found.run}"


class AwaitsAgain(BudgetCoordinator):
    """An Ask of an older round marks the site as awaiting an answer again."""

    def receive(self, site_id: SiteId, ask: Ask) -> Outbox:
        holder = self._holders.get(site_id)
        if holder is not None and holder.state is CURRENT and ask.round < self.round and ask.seq > holder.seq:
            with self._holders.changing(holder):
                holder.state = RECALLED
            self._recalled.add(site_id)
        return super().receive(site_id, ask)


class RefusesEveryWeight(BudgetCoordinator):
    """A refused request refuses smaller ones as well."""

    def receive(self, site_id: SiteId, ask: Ask) -> Outbox:
        outbox = super().receive(site_id, ask)
        return [
            (site, message._replace(weight=1) if isinstance(message, Exhausted) else message)
            for site, message in outbox
        ]


class NeverReopens(BudgetCoordinator):
    """Refused sites are not told when units return."""

    def _proceed(self) -> Outbox:
        self._refused_from = None
        return super()._proceed()


class ForgetsWhoLeft(BudgetCoordinator):
    """A late Ask of a site that left makes it a holder again."""

    def receive(self, site_id: SiteId, ask: Ask) -> Outbox:
        self._departed.clear()
        return super().receive(site_id, ask)


class SettlesUnreported(BudgetSite):
    """A refusing site does not report what its holds return."""

    def settle(self, units: int, used: int) -> tuple[Ask, ...]:
        super().settle(units, used)
        return ()


class IgnoresSequence(BudgetCoordinator):
    """An Ask counts although a newer one has overtaken it."""

    def receive(self, site_id: SiteId, ask: Ask) -> Outbox:
        holder = self._holders.get(site_id)
        if holder is not None:
            holder.seq = 0
        return super().receive(site_id, ask)


class GrantsToMissingSites(BudgetCoordinator):
    """The request of a site that timed out during a recall is answered before the site has."""

    def mark_unreachable(self, site_id: SiteId) -> Outbox:
        holder = self._holders.get(site_id)
        if holder is None or holder.state is not RECALLED or site_id not in self._waiting:
            return super().mark_unreachable(site_id)
        holder.state, holder.reachable = MISSED, False
        self._recalled.discard(site_id)
        return self._proceed()


class RecallsOnlyRooms(BudgetCoordinator):
    """A round does not recall refused sites that have no room."""

    def _may_return(self) -> list[SiteId]:
        return [
            site_id for site_id in super()._may_return() if self._holders[site_id].room or self._holders[site_id].held
        ]


class ForgivesLimits(BudgetCoordinator):
    """A reset forgives what sites may have spent, not what they have."""

    def _proceed(self) -> Outbox:
        if self._resetting and not self._recalled:
            self._resetting, self._forgiven = False, self._gone + self._holders.limits
        return super()._proceed()


class ForgivesEarly(BudgetCoordinator):
    """A reset forgives the limits of sites that have not answered its recall."""

    def reset(self) -> Outbox:
        self._forgiven = self._gone + self._holders.limits
        return self._start_round(self._may_return()) + self._proceed()


MUTANTS: dict[str, tuple[Case, type[BudgetCoordinator], type[BudgetSite]]] = {
    "awaits again": (Case(limit=4, requests=5, overtakes=1, reconnects=1), AwaitsAgain, BudgetSite),
    "refuses every weight": (Case(limit=3, weights=(1, 2)), RefusesEveryWeight, BudgetSite),
    "never reopens": (Case(holds=1), NeverReopens, BudgetSite),
    "forgets who left": (Case(limit=2, leaves=1, repeats=1), ForgetsWhoLeft, BudgetSite),
    "sends before saving": (Case(kills=1, sends_before_saving=True), BudgetCoordinator, BudgetSite),
    "settles unreported": (Case(holds=1), BudgetCoordinator, SettlesUnreported),
    "ignores sequence": (Case(overtakes=2, repeats=1), IgnoresSequence, BudgetSite),
    "grants to missing sites": (
        Case(limit=3, requests=4, weights=(1, 2), holds=2, timeouts=1),
        GrantsToMissingSites,
        BudgetSite,
    ),
    "recalls only rooms": (Case(limits=(3,)), RecallsOnlyRooms, BudgetSite),
    "forgives limits": (Case(requests=5, holds=1, resets=1), ForgivesLimits, BudgetSite),
    "forgives early": (Case(requests=5, resets=1, weights=(1, 2)), ForgivesEarly, BudgetSite),
}


# Where the fault is many steps away, the search starts after these: both sites have room, and nothing is free.
FIRST_STEPS: dict[str, list[Action]] = {
    "grants to missing sites": [
        *(("reserve", 0, 1), ("up", 0, 0), ("down", 0, 0), ("settle", 0, 0)),
        *(("reserve", 1, 2), ("up", 1, 0), ("down", 1, 0), ("settle", 1, 0)),
    ]
}


@pytest.mark.parametrize("name", MUTANTS)
def test_search_finds_the_mutant(name: str) -> None:
    case, coordinator, site = MUTANTS[name]
    world = World(case, coordinator, site)
    for step in FIRST_STEPS.get(name, []):
        world.do(step)
    found = search(world)
    assert found.broken is not None, f"{found.states} states without a fault"
