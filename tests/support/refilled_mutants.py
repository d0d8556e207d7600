"""Mistakes that are easily made with budgets that fill again, rolling or in each period; seeds must find each."""

from collections.abc import Iterable

import pytest

from countless.client.budgets.budget import BudgetPart
from countless.client.budgets.local_budget import LocalBudget
from countless.client.budgets.local_periods import LocalPeriods, UpItem
from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Ask, Outbox, Pane, Quota
from countless.core.budget.rolling import RollingSite
from countless.core.periods.site import SitePeriods
from countless.server.kinds.budget_periods import BudgetPeriod, BudgetPeriods
from countless.server.kinds.rolling_units import RollingUnits
from simulator.spending import ROLLING_S


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


def opens_closed_periods(patch: pytest.MonkeyPatch) -> None:
    """The coordinator opens a period again whose accounts it has deleted."""
    original = BudgetPeriods.close_ended

    def close_ended(self: BudgetPeriods) -> list[BudgetPeriod]:
        closed = original(self)
        self.first_period = 0
        return closed

    patch.setattr(BudgetPeriods, "close_ended", close_ended)


def frees_what_was_handed_over(patch: pytest.MonkeyPatch) -> None:
    original = RollingUnits.add_handed_over

    def add_handed_over(self: RollingUnits, panes: Iterable[Pane]) -> None:
        original(self, [Pane(ROLLING_S + 3, units) for _, units in panes])

    patch.setattr(RollingUnits, "add_handed_over", add_handed_over)


def is_handed_over_with_too_large_an_age(patch: pytest.MonkeyPatch) -> None:
    original = RollingSite._hand_over

    def hand_over(self: RollingSite) -> tuple[Pane, ...]:
        return tuple(Pane(age + ROLLING_S / 4, units) for age, units in original(self))

    patch.setattr(RollingSite, "_hand_over", hand_over)


def keeps_what_it_hands_over(patch: pytest.MonkeyPatch) -> None:
    original = RollingSite.resend

    def resend(self: RollingSite) -> Ask:
        before, ask = self.handed_over, original(self)
        self.limit += self.handed_over - before
        return ask

    patch.setattr(RollingSite, "resend", resend)


def frees_what_was_handed_over_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    original = BudgetCoordinator.recover

    def recover(self: BudgetCoordinator) -> Outbox:
        self.gone = 0
        return original(self)

    patch.setattr(BudgetCoordinator, "recover", recover)


def frees_what_was_saved(patch: pytest.MonkeyPatch) -> None:
    original = RollingUnits.save
    patch.setattr(RollingUnits, "save", lambda self: tuple((-3.0, units) for _, units in original(self)))


def forgets_what_was_saved(patch: pytest.MonkeyPatch) -> None:
    """It counts for ever."""
    patch.setattr(RollingUnits, "save", lambda self: ())
