"""A world for budgets with periods: production sessions, client budgets and a site server, on clocks that jump.

Processes and the coordinator are killed between any two steps.

| checked                            | when                                                                           |
|------------------------------------|--------------------------------------------------------------------------------|
| never more than the limit          | after every step, in every period, of what programs were admitted              |
| the limit can be spent             | at the end, in the period of clocks that agree again: all but what has leaked  |
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from random import Random
from threading import RLock

from countless.client.budgets.budget import BudgetLink, BudgetPart, BudgetRequest
from countless.client.budgets.requests import decide
from countless.client.session.protocol import SessionRetired, SiteSession
from countless.client.surroundings import ClientSurroundings
from countless.client.transport.base import ConnectionLost
from countless.core.budget.messages import Ask
from countless.core.budget.rule import BudgetRule
from countless.core.messages import SiteId
from countless.errors import CountlessError, UnknownBudget
from countless.server.settings import Settings
from countless.wire.frames import BudgetLeave
from support.budget_world import Broken
from support.session_world import CALENDAR, SILENT_AFTER_S, START_S, STEP_S, SessionWorld, Stream

LIMIT = 16
PER_MINUTE = BudgetRule(LIMIT, "minute", slack=0)
MAX_JUMP_S = 400.0
RESTORE_WAIT_S = 10.0  # here every client that runs has connected by then
WEIGHTS = {
    "request": 420,
    "settle": 80,
    "exchange": 380,
    "time": 50,
    "site's clock": 20,
    "coordinator's clock": 8,
    "all clocks": 2,
    "lose": 25,
    "kill": 8,
    "kill coordinator": 7,
}


class Site(Stream):
    """One process after another, under one name."""

    def __init__(self, world: "World", name: str) -> None:
        self.name = name
        self.offset = 0.0  # of its wall clock
        self.world = world
        self.start()

    def start(self) -> None:
        """A new process that knows nothing of the one before it."""
        site_id = SiteId(self.name, next(self.world.incarnations))
        self.lock = RLock()
        self.session = SiteSession(site_id, self.lock, lambda: None, ClientSurroundings(self.world.clock))
        link = BudgetLink(
            self._queue, lambda: True, lambda number: None, clock=self.wall_clock, steady_clock=self.world.clock
        )
        self.budget = BudgetPart("tokens", site_id, self.lock, link)
        self.session.add_budget("tokens", self.budget)
        self.holds: list[tuple[int, int, BudgetRequest]] = []  # period, units
        self.disconnect()

    def wall_clock(self) -> float:
        return START_S + self.world.time + self.offset

    def _queue(self, name: str, items: Sequence[Ask | BudgetLeave]) -> None:
        self.session.queue_budget(items)

    # Requests

    def request(self, n: int, *, hold: bool) -> bool:
        request = BudgetRequest(self.budget, n, hold=hold)
        try:
            allowed = bool(decide(request, wait=0))
        except UnknownBudget:  # its clock is wrong
            return False
        if allowed:
            resets_at = self.budget.resets_at
            if resets_at is None:
                raise Broken("a request was admitted before the rule was known")
            period = CALENDAR.period_at(resets_at - 1)
            self.world.admitted[period] += n
            if hold:
                self.holds.append((period, n, request))
        return allowed

    def settle(self, used: int) -> None:
        period, units, request = self.holds.pop(0)
        used = min(used, units)
        request.settle(units, used)
        self.world.admitted[period] -= units - used

    # The connection

    def receive(self, frames: list[bytes]) -> None:
        """Frames, or the time that has passed."""
        if self.steps is None:
            return
        try:
            self.steps.send(frames)
        except SessionRetired as retired:
            self.session.renew(retired, self._new_incarnation)
            self.connect()
        except (ConnectionLost, StopIteration):
            self.disconnect()

    def _new_incarnation(self, site_id: SiteId) -> AbstractContextManager[None]:
        return nullcontext()


class WorldSettings(Settings):
    @property
    def least_restore_wait(self) -> float:
        return RESTORE_WAIT_S


class World(SessionWorld[Site]):
    site_class = Site

    settings = WorldSettings

    def __init__(self, sites: int, seed: int, weights: dict[str, int]) -> None:
        super().__init__()
        self.rng = Random(seed)  # noqa: S311
        self.weights = WEIGHTS | weights
        self.admitted: Counter[int] = Counter()  # by period: spent and held, in truth
        self.sites = [self.site_class(self, f"site-{number}") for number in range(sites)]

    def start_server(self, after_restore: bool = False) -> None:
        self.run_server(self.store, after_restore=after_restore)

    # Steps

    async def step(self) -> None:
        rng, site = self.rng, self.rng.choice(self.sites)
        (action,) = rng.choices(list(self.weights), list(self.weights.values()))
        if action == "request":
            site.request(rng.choice((1, 2, 7)), hold=rng.random() < 0.3)
        elif action == "settle" and site.holds:
            site.settle(rng.randrange(8))
        elif action == "exchange":
            await self.exchange(site)
        elif action == "time":
            await self.pass_time(rng.choice((1.0, 5.0, 25.0, 61.0)))
        elif action == "site's clock":
            site.offset = rng.choice((0.0, -61.0, 61.0, 122.0, rng.uniform(-200.0, 200.0), 10_000.0))
        elif action == "coordinator's clock":
            self.offset = rng.choice((0.0, -61.0, -122.0, rng.uniform(-MAX_JUMP_S, MAX_JUMP_S)))
        elif action == "all clocks":  # they are on one machine
            jump = rng.choice((-122.0, -61.0, 61.0))
            self.offset += jump
            for each in self.sites:
                each.offset += jump
        elif action == "lose":
            self.lose_connection(site)
        elif action == "kill":
            self.lose_connection(site)
            site.start()
        elif action == "kill coordinator":
            await self.kill_server()
            self.start_server()
        self.time += STEP_S
        site.receive([])
        self.check()

    async def exchange(self, site: Site) -> None:
        """Deliver some of what is on its way from and to a site; connect it if it is not."""
        if site.steps is None:
            site.connect()
        for _ in range(self.rng.choice((1, 3, 10))):
            if site.up and self.rng.random() < 0.6:
                await self.deliver_up(site)
            else:
                self.deliver_down(site)

    def check(self) -> None:
        for period, admitted in self.admitted.items():
            if admitted > LIMIT:
                raise Broken(f"{admitted} units admitted in period {period}, the limit is {LIMIT}")

    async def deliver_all(self) -> None:
        for _ in range(10_000):
            self.time += STEP_S
            for site in self.sites:
                if site.steps is None:
                    site.connect()
                site.receive([])
                while site.up:
                    await self.deliver_up(site)
                while site.connection is not None and site.connection.received:
                    self.deliver_down(site)
            if not any(site.up or (site.connection and site.connection.received) for site in self.sites):
                return
        raise Broken("messages are sent without end")

    async def spend_the_rest(self) -> None:
        """All clocks are right, in a period that has just begun, after those that wrong clocks have closed."""
        self.offset = 0.0
        for site in self.sites:
            site.offset = 0.0
            site.holds.clear()
        for seconds in (4 * SILENT_AFTER_S, MAX_JUMP_S, 60 - self.time % 60 + 1):
            await self.pass_time(seconds)
            await self.deliver_all()
        period = CALENDAR.period_at(self.wall_clock())
        refused: set[str] = set()
        while len(refused) < len(self.sites):
            for site in self.sites:
                if not site.request(1, hold=False):
                    await self.deliver_all()
                    if not site.request(1, hold=False):
                        refused.add(site.name)
            self.check()
        leaked = self.server.budgets.get("tokens").usage.leaked
        if self.admitted[period] + leaked < LIMIT:
            raise Broken(f"{self.admitted[period]} units admitted at the end, and {leaked} leaked, of {LIMIT}")


@asynccontextmanager
async def running(world: World, rule: BudgetRule = PER_MINUTE) -> AsyncIterator[World]:
    world.start_server()
    world.server.budgets.create("tokens", rule)
    await world.server.flush()
    try:
        yield world
    finally:
        await world.kill_server()


async def play(seed: int, steps: int = 400, sites: int = 3, weights: dict[str, int] | None = None) -> str | None:
    """One random run; what was broken in it."""
    return await play_in(World(sites, seed, weights or {}), PER_MINUTE, seed, steps)


async def play_in(world: World, rule: BudgetRule, seed: int, steps: int) -> str | None:
    async with running(world, rule):
        try:
            for _ in range(steps):
                await world.step()
            await world.spend_the_rest()
        except Broken as broken:
            return f"seed {seed}: {broken}"
        except CountlessError as error:
            return f"seed {seed}: {error!r}"
    return None
