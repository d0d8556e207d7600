"""The world of `budget_world.py` for rolling budgets: random runs on a clock.

At most the limit is taken in every window, its ends included. When the window has passed at rest, all units are back.
"""

from collections.abc import Iterator
from typing import Any

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Outbox
from countless.core.budget.rolling import Returns, RollingSite
from countless.core.budget.site import BudgetSite
from countless.core.budget.state import PersistentBudget
from support.budget_world import BUDGET, IDS, Action, Broken, Case, World

WINDOW_S = 20.0


class RollingWorld(World):
    sites: list[RollingSite]  # type: ignore[assignment]

    def __init__(
        self,
        case: Case,
        coordinator: type[BudgetCoordinator] = BudgetCoordinator,
        site: type[BudgetSite] = RollingSite,
    ) -> None:
        self.time = 0.0
        self.returns = Returns(WINDOW_S)
        self.taken: list[tuple[float, int]] = []
        super().__init__(case, coordinator, site)
        self.save()

    def new_coordinator(self, saved: PersistentBudget | None = None) -> BudgetCoordinator:
        return self.coordinator_class(BUDGET, self.case.limit, slack=self.case.slack, rolling=True, saved_state=saved)

    def new_site(self, seq: int = 0, since: int = 0) -> BudgetSite:
        site_class: Any = self.site_class
        site: BudgetSite = site_class(BUDGET, WINDOW_S, early_percent=self.case.early_percent, seq=seq, since=since)
        return site

    # Steps

    def actions(self) -> Iterator[Action]:
        yield from super().actions()
        for seconds in (0.3, 1.0, 5.0, WINDOW_S / 2, WINDOW_S + 1):
            yield ("time", seconds)

    def _time(self, seconds: float) -> None:
        self.time += seconds
        self._send(self.coordinator.return_units(self.returns.due(self.time)))
        for number, site in enumerate(self.sites):
            if site.next_at <= self.time and not self.ended[number]:
                self.again(number)

    def again(self, number: int) -> None:
        self.sites[number].advance(self.time)
        super().again(number)

    def _request(self, number: int, weight: int, hold: bool) -> None:
        site = self.sites[number]
        site.advance(self.time)
        spent = site.spent
        super()._request(number, weight, hold)
        site.record()
        if site.spent > spent and not hold:
            self.taken.append((self.time, weight))

    def _settle(self, number: int, place: int, used: int) -> None:
        site = self.sites[number]
        site.advance(self.time)
        self.taken.append((self.time, used))
        super()._settle(number, place, used)

    def _reconnect(self, number: int) -> None:
        self.sites[number].advance(self.time)
        super()._reconnect(number)

    def _connect(self, number: int) -> None:
        self.sites[number].advance(self.time)
        super()._connect(number)

    def _leave(self, number: int) -> None:
        site = self.sites[number]
        site.advance(self.time)
        self.taken.append((self.time, site.held))
        super()._leave(number)

    def _send(self, outbox: Outbox) -> None:
        for age, units in self.coordinator.take_panes():
            self.returns.add(self.time + WINDOW_S - age, units)
        super()._send(outbox)

    def save(self) -> None:
        super().save()
        self.saved_returns = self.returns.left(self.time)

    def _kill(self) -> None:
        self.returns = Returns(WINDOW_S)
        for seconds, units in self.saved_returns:
            self.returns.add(self.time + seconds, units)
        super()._kill()

    # What must be true

    @property
    def used(self) -> int:
        departed = self.coordinator._departed
        return sum(site.used for number, site in enumerate(self.sites) if IDS[number] not in departed)

    def check(self) -> None:
        super().check()
        self.taken = [each for each in self.taken if each[0] >= self.time - WINDOW_S]
        taken = sum(units for _, units in self.taken)
        held = sum(site.held for site in self.sites)
        if taken + held > self.case.limit:
            raise Broken(f"{taken} units taken in one window, and {held} held: the limit is {self.case.limit}")

    def left_units(self) -> int:
        return super().left_units() - self.coordinator.gone

    def check_when_quiet(self) -> None:
        super().check_when_quiet()
        for _ in range(4):
            self.do(("time", WINDOW_S / 2 + 1))
            self.deliver_all()
        super().check_when_quiet()
        if self.coordinator.gone:
            raise Broken(f"{self.coordinator.gone} units do not come back")
