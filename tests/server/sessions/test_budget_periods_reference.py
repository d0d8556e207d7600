"""Budgets with periods against an exact count of what is admitted, with clocks that differ and jump.

`World` (tests/support/period_world.py) lists what happens and what is checked. The mutants are mistakes that are easily
made with periods: the random runs must find each of them.
"""

from collections.abc import Callable
from itertools import count

import pytest

from countless.client.budgets.budget import BudgetPart
from countless.client.budgets.local_budget import LocalBudget
from countless.client.budgets.local_periods import LocalPeriods, UpItem
from countless.client.session import protocol
from countless.core.budget.messages import BudgetId, Quota
from countless.core.periods.site import SitePeriods
from countless.server.kinds.budget_periods import BudgetPeriod, BudgetPeriods
from countless.server.storage import commit
from support.period_world import play

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run for the same seed, without pauses between saves."""
    numbers = count(1 << 40)
    monkeypatch.setattr(protocol, "new_incarnation", lambda *_: next(numbers))
    monkeypatch.setattr(commit, "COMMIT_INTERVAL_S", 0.0)


async def test_no_period_is_overspent_and_the_present_one_can_be_spent() -> None:
    for seed in range(15):
        broken = await play(seed)
        assert broken is None, broken


@pytest.mark.soak
async def test_no_period_is_overspent_in_many_long_runs() -> None:
    for seed in range(15, 700):
        broken = await play(seed, steps=1000, sites=4)
        assert broken is None, broken


def settles_in_the_present_period(patch: pytest.MonkeyPatch) -> None:
    """A hold is settled in the period that the clock shows."""
    original = BudgetPart.settle

    def settle(self: BudgetPart, local: LocalBudget, units: int, used: int) -> None:
        original(self, self._local, units, used)

    patch.setattr(BudgetPart, "settle", settle)


def grants_to_the_present_period(patch: pytest.MonkeyPatch) -> None:
    """A grant is used in the period that the clock shows."""

    def receive(self: LocalPeriods, message: Quota) -> tuple[UpItem, ...]:
        self.present.receive(message._replace(budget=self.present.site.budget))
        return ()

    patch.setattr(LocalPeriods, "receive", receive)


def carries_units_over(patch: pytest.MonkeyPatch) -> None:
    """What is left of a period can be spent in the next one."""
    original = SitePeriods.enter

    def enter(self: SitePeriods[LocalBudget], now: float) -> LocalBudget:
        before, present = self.states.get(self.period), original(self, now)
        if before is not None and present is not before:
            present.site.limit += before.site.room
        return present

    patch.setattr(SitePeriods, "enter", enter)


def makes_states_again(patch: pytest.MonkeyPatch) -> None:
    """A period that was dropped begins from nothing when the clock goes back to it."""

    def hand_in(self: LocalPeriods, locals_: list[LocalBudget]) -> list[UpItem]:
        return []

    patch.setattr(LocalPeriods, "_hand_in", hand_in)


def begins_before_the_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    """A period that was handed in begins again while that may be sent once more."""

    def new(self: LocalPeriods, period: int) -> LocalBudget:
        return self._make(BudgetId(self._name, period))

    patch.setattr(LocalPeriods, "_new", new)


def opens_closed_periods(patch: pytest.MonkeyPatch) -> None:
    """The coordinator opens a period again whose accounts it has deleted."""
    original = BudgetPeriods.close_ended

    def close_ended(self: BudgetPeriods) -> list[BudgetPeriod]:
        closed = original(self)
        self.first_period = 0
        return closed

    patch.setattr(BudgetPeriods, "close_ended", close_ended)


# Clocks of sites jump often, and acknowledgements are lost.
RESTLESS = {"site's clock": 300, "lose": 80, "time": 20, "kill": 0, "kill coordinator": 0, "coordinator's clock": 0}
ADRIFT = {"all clocks": 60, "time": 120}
# With the first seed that finds it today: if the runs change, later ones will.
MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], dict[str, int], int]] = [
    (settles_in_the_present_period, {}, 0),
    (grants_to_the_present_period, {}, 0),
    (carries_units_over, {}, 0),
    (makes_states_again, RESTLESS, 52),
    (begins_before_the_acknowledgement, RESTLESS, 40),
    (opens_closed_periods, ADRIFT, 49),
]


@pytest.mark.parametrize(("mutant", "weights", "first"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
async def test_random_runs_find_the_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], weights: dict[str, int], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(first, 400):
        if await play(seed, sites=2, weights=weights) is not None:
            return
    pytest.fail("no run has found it")


@pytest.mark.parametrize("weights", [RESTLESS, ADRIFT], ids=["restless", "adrift"])
async def test_no_period_is_overspent_where_clocks_jump_often(weights: dict[str, int]) -> None:
    for seed in range(8):
        broken = await play(seed, sites=2, weights=weights)
        assert broken is None, broken
