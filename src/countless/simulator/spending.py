"""Programs that spend and hold units of budgets, what was really admitted, and what must hold of budgets.

| checked after every action                                               | budgets                                  |
|--------------------------------------------------------------------------|------------------------------------------|
| no more than the limit is admitted                                       | for good, in a period, in a rolling one  |
| the coordinator knows of no unit that was not admitted: none counts twice| for good, in a period                    |
| its upper bound has every unit that is admitted: none is forgotten       | for good, in a period                    |
"""

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from countless.client.budgets.budget import BudgetRequest
from countless.core.budget.rule import BudgetRule
from countless.core.calendar import Calendar
from countless.core.random_source import RandomSource
from countless.errors import InvariantBroken, UnknownBudget
from countless.server.sessions.site_server import SiteServer
from countless.simulator.fuse import Killed
from countless.simulator.process import Process

LIMIT = 16
ROLLING_S = 60.0
MINUTES = Calendar("minute")
BUDGETS = {
    "for good": BudgetRule(LIMIT, slack=0),
    "per minute": BudgetRule(LIMIT, "minute", slack=0),
    "rolling": BudgetRule(LIMIT, slack=0, rolling=ROLLING_S),
}
Period = tuple[str, int]  # a budget, and the number of a period


class Hold(NamedTuple):
    of: Period
    units: int
    request: BudgetRequest


class Spending:
    def __init__(self, rng: RandomSource, budgets: tuple[str, ...], clock: Callable[[], float]) -> None:
        self._rng = rng
        self._budgets = budgets
        self._clock = clock
        self._holds: dict[Process, list[Hold]] = {}
        self._admitted: Counter[Period] = Counter()  # spent and held
        self._charged: Counter[Period] = Counter()  # also what was held once, and what killed processes had asked for
        self._rolling: deque[tuple[float, int]] = deque()  # when, how many

    def act(self, process: Process) -> None:
        holds = self._holds.setdefault(process, [])
        if holds and not self._rng.randbelow(3):
            self._settle(process, holds.pop(0))
            return
        for _ in range((1, 4, 12)[self._rng.randbelow(3)]):
            name = self._budgets[self._rng.randbelow(len(self._budgets))]
            with process.fuse:
                self._request(process, name)
            if process.killed:
                return

    def use_all(self, process: Process) -> None:
        for name in self._budgets:
            self._request(process, name)

    def _settle(self, process: Process, hold: Hold) -> None:
        used = self._rng.randbelow(hold.units + 1)
        self._admitted[hold.of] -= hold.units - used
        with process.fuse:
            hold.request.settle(hold.units, used)

    def _request(self, process: Process, name: str) -> None:
        budget, units = process.budget(name), (1, 1, 2, 7)[self._rng.randbelow(4)]
        if name == "rolling":
            if budget.take(units, wait=0):
                self._rolling.append((self._clock(), units))
            return
        hold = not self._rng.randbelow(3)
        request = BudgetRequest(budget, units, hold=hold)
        try:
            allowed = bool(request.attempt())
        except UnknownBudget:  # a clock is wrong
            return
        except Killed:
            period = 0 if BUDGETS[name].per is None else MINUTES.period_at(process.wall_clock())
            self._charged[name, period] += units
            raise
        if allowed:
            resets_at = budget.resets_at
            of = name, 0 if resets_at is None else MINUTES.period_at(resets_at - 1)
            self._admitted[of] += units
            self._charged[of] += units
            if hold:
                self._holds.setdefault(process, []).append(Hold(of, units, request))

    def check(self, servers: list[SiteServer]) -> None:
        for (name, period), units in self._admitted.items():
            _require(units <= LIMIT, f"{units} units of {name} admitted in period {period}")
        while self._rolling and self._rolling[0][0] < self._clock() - ROLLING_S:
            self._rolling.popleft()
        units = sum(units for _, units in self._rolling)
        _require(units <= LIMIT, f"{units} units admitted in a rolling window")
        for server in servers:
            for name, budget in server.budgets.by_name.items():
                for period, coordinator in budget.periods.items() if budget.rolling is None else ():
                    usage, of = coordinator.usage, (name, period)
                    _require(usage.lower <= self._charged[of], f"{usage} of {of}, at most {self._charged[of]} in truth")
                    _require(self._admitted[of] <= usage.upper, f"{usage} of {of}, in truth {self._admitted[of]}")


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise InvariantBroken(otherwise)
