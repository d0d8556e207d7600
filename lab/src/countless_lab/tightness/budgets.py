"""Budgets: the limit, refusals and messages. It knows only what a program knows of a `Budget` in one process."""

from collections import Counter
from dataclasses import dataclass

from countless.core.budget.hold import Hold
from countless.core.calendar import Per
from countless.errors import BudgetRefused
from countless.inprocess.budget import Budget
from countless.planning.budget import most_messages
from countless_lab.tightness.search import Group, Ratios, Row, Run

KINDS = 12
WINDOW_S = 10.0
START = 1_763_002_800.0
MAX_SITES = 12


@dataclass(frozen=True)
class Setting:
    limit: int
    sites: int
    slack: float
    rolling: bool = False
    per: Per | None = None


SETTINGS = (
    Setting(10, 2, 0.0),
    Setting(40, 2, 0.1),
    Setting(100, 5, 0.05),
    Setting(1000, 3, 0.0),
    Setting(1000, 8, 0.01),
    Setting(100_000, 10, 0.01),
    Setting(2, 8, 0.0),
    Setting(10, 2, 0.0, rolling=True),
    Setting(100, 3, 0.1, rolling=True),
    Setting(1000, 2, 0.01, rolling=True),
    Setting(50, 3, 0.0, per="minute"),
)
ROWS = (
    Row("C50", "C50", "units spent and held <= limit"),
    Row("C51", "C51", "units left when w are refused <= max(slack limit, w - 1)"),
    Row(
        "C52",
        "C52",
        "messages for requests of one unit <= h (41.8 + 7.19 ln(1/s)) + 2, or less",
        why="the bound lets each of the holders have a full share after every recall; "
        "no site can be full again before the others have spent theirs",
    ),
    Row("C52 small", "C52", "messages for requests of one unit <= 4 L + 2 h, where that is less"),
    Row("C55", "C55", "units spent in a period <= limit"),
    Row("C57", "C57", "units spent since a reset, and held <= limit"),
    Row("C70", "C70", "units taken in an interval as long as the window <= limit"),
    Row("C71", "C71", "limit - units of the last 1.1 windows, when w are refused <= max(slack limit, w - 1)"),
    Row("C111", "C111", "messages <= 4 requests decided + settlements + departures"),
)


class World:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.now = START
        rolling = WINDOW_S if setting.rolling else None
        self.budget = Budget(
            setting.limit, setting.sites, setting.slack, per=setting.per, rolling=rolling, clock=lambda: self.now
        )
        self.decided = self.ended = 0  # requests; settlements and departures
        self.in_period: Counter[float | None] = Counter()  # units taken in each period, by its end
        self.since_reset = 0
        self.taken: list[tuple[float, int]] = []
        self.left = False
        self.ratios: Ratios = dict.fromkeys((row.name for row in ROWS), 0.0)
        self.holds: list[Hold] = []
        self.asked: set[int | str] = set()
        self.reset = False
        self.fixed = True  # no holds, and no site came or went

    def take(self, kind: int, who: int, amount: int) -> None:
        budget = self.budget
        name = budget.sites[who % len(budget.sites)]
        site = budget.site(name)
        match kind:
            case 0:
                self._units(name, 1 + amount)
            case 1:
                self._units(name, site.room + 1)
            case 2:
                for each in budget.sites:
                    self._units(each, 1)
            case 3:
                for each in budget.sites:
                    self._units(each, budget.site(each).room)
            case _ if amount >= 16:
                self._units(name, 1)
            case 4:
                self._many(name, max(1, budget.limit * (1 + who) // 64))
            case 9:
                self.now += amount / 8 if who % 4 else WINDOW_S
            case 10 if amount < 4 and not self.setting.rolling and not self.setting.per:
                self.budget.reset()
                self.since_reset = 0
                self.reset = True
            case 11 if self.setting.per:  # the clock may also be set back
                self.now += (who - 24) * amount
            case 5 if not self.setting.rolling and not self.setting.per:
                self._hold(name, 1 + amount % budget.limit)
            case 6:
                if self.holds:
                    self.holds.pop(who % len(self.holds)).settle(0)
                    self.ended += 1
            case 7:
                if len(budget.sites) < MAX_SITES:
                    budget.add_site()
            case 8:
                if len(budget.sites) > 1 and not self.holds:
                    budget.remove_site(name)
                    self.left = True
                    self.ended += 1
        self.fixed = self.fixed and (kind < 4 or amount >= 16)
        if not self.reset:
            self._note("C111", budget.messages.total, 4 * self.decided + self.ended)
        if self.setting.rolling:
            return
        if self.setting.per:
            self._note("C55", max(self.in_period.values(), default=0), self.setting.limit)
            return
        if self.reset:
            self._note("C57", self.since_reset + sum(hold.units for hold in self.holds), self.setting.limit)
            return
        self._note("C50", budget.spent + budget.held, self.setting.limit)
        if self.fixed and self.asked:
            holders, limit = len(self.asked), budget.limit
            most = most_messages(holders, limit, self.setting.slack)
            self._note("C52" if most < 4 * limit + 2 * holders else "C52 small", budget.messages.total, most)

    def _units(self, name: int | str, requests: int) -> None:
        """Requests of one unit; those that fit the room of the site are taken at once."""
        site = self.budget.site(name)
        self.asked |= {name} if requests else set()
        while requests > 0:
            units = max(1, min(requests, site.room))
            if not self._take(name, units):
                return
            requests -= units

    def _many(self, name: int | str, units: int) -> None:
        self._take(name, units)

    def _take(self, name: int | str, units: int) -> bool:
        self.decided += 1
        if not self.budget.site(name).take(units):
            self._refused(units)
            return False
        self.in_period[self.budget.resets_at] += units
        self.since_reset += units
        if self.setting.rolling:
            self.taken.append((self.now, units))
            self._note("C70", self._taken_since(self.now - WINDOW_S), self.setting.limit)
        return True

    def _taken_since(self, moment: float) -> int:
        return sum(units for when, units in self.taken if when >= moment)

    def _hold(self, name: int | str, units: int) -> None:
        self.decided += 1
        try:
            self.holds.append(self.budget.site(name).reserve(units))
        except BudgetRefused:
            self._refused(units)

    def _refused(self, units: int) -> None:
        if self.reset or self.setting.per:
            return
        if self.setting.rolling:
            name, left = "C71", self.setting.limit - self._taken_since(self.now - 1.1 * WINDOW_S)
        else:
            name, left = "C51", self.setting.limit - self.budget.spent - self.budget.held
        allowed = max(self.setting.slack * self.setting.limit, units - 1)
        if not self.left:
            self._note(name, left if allowed else 2 * left, allowed or 1)

    def _note(self, name: str, found: float, allowed: float) -> None:
        if allowed:
            self.ratios[name] = max(self.ratios[name], found / allowed)


def play(run: Run) -> Ratios:
    world = World(SETTINGS[run[0]])
    for operation in run[1]:
        world.take(*operation)
    return world.ratios


GROUP = Group(ROWS, len(SETTINGS), KINDS, play)
