"""Programs that spend and hold units of budgets, what was really admitted, and what must hold of budgets.

| checked after every action                                               | budgets                                  |
|--------------------------------------------------------------------------|------------------------------------------|
| no more than the limit is admitted                                       | for good, in a period, in a rolling one  |
| the coordinator knows of no unit that was not admitted: none counts twice| for good, in a period                    |
| its upper bound has every unit that is admitted: none is forgotten       | for good, in a period                    |

When everything is healed, profiles that go `to_the_last` check that the whole limit can be spent of a budget that fills
again: in a period that begins, and of a rolling one when all has come back.

After a restore the coordinator does not know what incarnations were granted since the copy was made, and have ended.
The limit may be exceeded by what they took, and by no more. Units that were handed in to an earlier run of the
coordinator, and are handed in again because the acknowledgement was lost, may count twice.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from countless.client.budgets.budget import BudgetRequest
from countless.client.budgets.requests import decide
from countless.core.budget.rule import BudgetRule
from countless.core.calendar import Calendar
from countless.core.messages import SiteId
from countless.core.random_source import RandomSource
from countless.errors import InvariantBroken, UnknownBudget
from countless.wire.keys import BUDGET, Key
from simulator.coordinator import Service
from simulator.fuse import Killed
from simulator.process import Process

LIMIT = 16
ROLLING_S = 60.0
REST_S = 300.0  # more than a lease and a window of a rolling budget
_ROUNDS = 40  # of requests, in which the whole limit can be spent
MINUTES = Calendar("minute")
BUDGETS = {
    "for good": BudgetRule(LIMIT, slack=0),
    "per minute": BudgetRule(LIMIT, "minute", slack=0),
    "rolling": BudgetRule(LIMIT, slack=0, rolling=ROLLING_S),
}
Period = tuple[str, int]  # a budget, and the number of a period
Spender = tuple[Process, SiteId]


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
        self._charged: defaultdict[Period, Counter[Spender]] = defaultdict(Counter)  # also what was held once, and what
        # killed processes had asked for
        self._rolling: deque[tuple[float, int, Spender]] = deque()  # when, how many, who
        self._since_copy: dict[Spender, Counter[Period]] = {}  # admitted since the last copy was made
        self._excused: Counter[Period] = Counter()  # units of spenders that no coordinator can know
        self._unknown: set[Spender] = set()  # these spenders
        self._last_running: dict[Spender, float] = {}  # when it was seen
        self._restored = False

    def on_back_up(self) -> None:
        self._since_copy.clear()

    def _excuse_others(self, running: set[Spender]) -> None:
        """While budgets wait for what processes tell that run. Those that have ended tell nothing."""
        self._restored = True
        for spender in self._since_copy.keys() - running:
            self._excused += self._since_copy.pop(spender)
            self._unknown.add(spender)

    def act(self, process: Process) -> None:
        holds = self._holds.setdefault(process, [])
        if holds and not self._rng.randbelow(3):
            hold = holds.pop(0)
            self._settle(process, hold, self._rng.randbelow(hold.units + 1))
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

    def settle_all(self) -> None:
        """Nothing was used of what is held."""
        for process, holds in self._holds.items():
            while holds:
                self._settle(process, holds.pop(), used=0)

    async def spend_the_rest(self, processes: list[Process]) -> None:
        """Spend budgets that fill again: the whole limit, and not more."""
        for name in self._budgets:
            taken = 0
            for _ in range(_ROUNDS):
                taken += sum(self._take(process, name, 1) for process in processes)
                await asyncio.sleep(0.5)
            _require(taken == LIMIT, f"{taken} units of {name} can be spent at the end, the limit is {LIMIT}")

    def _settle(self, process: Process, hold: Hold, used: int) -> None:
        self._admitted[hold.of] -= hold.units - used
        with process.fuse:
            hold.request.settle(hold.units, used)

    def _request(self, process: Process, name: str) -> None:
        units = (1, 1, 2, 7)[self._rng.randbelow(4)]
        self._take(process, name, units, hold=name != "rolling" and not self._rng.randbelow(3))

    def _take(self, process: Process, name: str, units: int, *, hold: bool = False) -> bool:
        budget, spender = process.budget(name), _spender(process, name)
        if name == "rolling":
            allowed = bool(budget.take(units, wait=0))
            if allowed:
                self._rolling.append((self._clock(), units, spender))
                self._since_copy.setdefault(spender, Counter())
            return allowed
        request = BudgetRequest(budget, units, hold=hold)
        try:
            allowed = bool(decide(request, wait=0))
        except UnknownBudget:  # a clock is wrong
            return False
        except Killed:
            period = 0 if BUDGETS[name].per is None else MINUTES.period_at(process.wall_clock())
            self._charged[name, period][spender] += units
            raise
        if allowed:
            resets_at = budget.resets_at
            of = name, 0 if resets_at is None else MINUTES.period_at(resets_at - 1)
            self._admitted[of] += units
            self._charged[of][spender] += units
            self._since_copy.setdefault(spender, Counter())[of] += units
            if hold:
                self._holds.setdefault(process, []).append(Hold(of, units, request))
        return allowed

    def check(self, service: Service, processes: Iterable[Process]) -> None:
        running = {_spender(process, name) for process in processes if process.client.open for name in self._budgets}
        self._last_running |= dict.fromkeys(running, self._clock())
        if service.restoring:
            self._excuse_others(running)
        for of, units in self._admitted.items():
            _require(units <= LIMIT + self._excused[of], f"{units} units admitted of {of}, {self._excused[of]} unknown")
        while self._rolling and self._rolling[0][0] < self._clock() - ROLLING_S:
            self._rolling.popleft()
        units = sum(units for _, units, spender in self._rolling if spender not in self._unknown)
        _require(units <= LIMIT, f"{units} units admitted in a rolling window")
        for server in service.servers():
            for name, budget in server.budgets.by_name.items():
                for period, each in budget.periods.items() if budget.rolling is None else ():
                    usage, of = each.coordinator.usage, (name, period)
                    charged = self._charged[of].total() + self._handed_in_twice(of, service.started)
                    _require(usage.lower <= charged, f"{usage} of {of}, at most {charged} in truth")
                    known = self._admitted[of] <= usage.upper + self._excused[of]
                    _require(service.restoring or known, f"{usage} of {of}, in truth {self._admitted[of]}")

    def _handed_in_twice(self, of: Period, started: float) -> int:
        """At most: by spenders that have ended before the coordinator was started, or for which the period has."""
        charged = self._charged[of].items() if self._restored else ()
        ends = BUDGETS[of[0]].per is not None
        return sum(units for spender, units in charged if ends or self._last_running.get(spender, 0.0) < started)


def _spender(process: Process, budget: str) -> Spender:
    return process, process.client.client_loop.site_id_for(Key(BUDGET, budget))


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise InvariantBroken(otherwise)
