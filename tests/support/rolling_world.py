"""A world for rolling budgets: production sessions, client budgets and a site server, on one virtual clock.

It is `period_world` with another rule and another check. Connections keep the order of frames, delay them, and lose
what is under way when they end. Processes, with and without a state_dir, and the coordinator are killed between any
two steps. A process that is cut off goes on.

| checked                   | when                                                                                    |
|---------------------------|-----------------------------------------------------------------------------------------|
| never more than the limit | after every step, of what was taken in the last window, and is held                     |
| the limit can be taken    | at the end, when everything has come back                                               |

Units that a lost process holds count until a window after its lease.
"""

from collections import deque
from threading import RLock

from countless.client.budgets.budget import BudgetLink, BudgetPart, BudgetRequest, in_memory
from countless.client.budgets.local_budget import LocalBudget
from countless.client.budgets.requests import decide
from countless.client.durable.budget import DurableBudget, OrphanedBudget
from countless.client.durable.count_file import CountFile
from countless.client.session.protocol import SiteSession
from countless.client.surroundings import ClientSurroundings
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from support import period_world
from support.budget_world import Broken
from support.period_world import LIMIT, play_in
from support.session_world import STEP_S

WINDOW_S = 60.0
RULE = BudgetRule(LIMIT, slack=0, rolling=WINDOW_S)


class Reserved:
    """Units that a program holds, and until when they count, at least."""

    def __init__(self, site: "RollingSite", units: int, request: BudgetRequest) -> None:
        self.units = units
        self.counts_until = site.session.contact.at
        self._site = site
        self._session = site.session
        self._request = request
        self.update()

    def update(self) -> None:
        """It counts now, unless the lease of the process has ended, or it was told to forget what it has."""
        local = self._request._local
        if local is not None and not local.site.closed:
            self.counts_until = min(self._site.world.time, self._session.contact.at + RULE.lease)

    def settle(self, used: int) -> None:
        self.update()
        self._request.settle(self.units, used)


WEIGHTS = {
    "request": 420,
    "settle": 60,
    "exchange": 380,
    "time": 100,
    "lose": 25,
    "leave": 5,
    "kill": 8,
    "kill coordinator": 7,
}


class Recovery(period_world.Site):
    """Hands in what a process that ended has left in its state_dir."""

    def __init__(self, world: "RollingWorld", file: CountFile) -> None:
        self._file = file
        super().__init__(world, str(file.site_id.site))

    def start(self) -> None:
        self.lock = RLock()
        self.session = SiteSession(self._file.site_id, self.lock, lambda: None, ClientSurroundings(self.world.clock))
        self.session.add_budget("tokens", OrphanedBudget(each for each in self._file.budgets if each.incarnation))
        self.session.leave()
        self.disconnect()


class RollingSite(period_world.Site):
    world: "RollingWorld"

    def start(self) -> None:
        super().start()
        site_id = self.session.site_id
        self.file = CountFile.in_memory(site_id) if self.world.rng.random() < 0.5 else None
        link = BudgetLink(
            self._queue,
            lambda: self.steps is not None,
            lambda number: None,
            self._new_local,
            steady_clock=self.world.clock,
            contact=lambda: self.session.contact.at,
        )
        self.budget = BudgetPart("tokens", site_id, self.lock, link)
        self.session.add_budget("tokens", self.budget)
        self.reserved: list[Reserved] = []

    def _new_local(self, state: BudgetSite, site_id: SiteId) -> LocalBudget:
        if self.file is None:
            return in_memory(state, site_id)
        return DurableBudget(state, site_id.incarnation, self.file)

    def end_process(self) -> None:
        """A new process. What the last one has left in a state_dir is handed in beside it."""
        if self.file is not None:
            self.world.sites.append(Recovery(self.world, self.file))
        for reserved in self.reserved:
            self.world.taken.append((reserved.counts_until, reserved.units))
        self.start()

    def request(self, n: int, *, hold: bool) -> bool:
        world = self.world
        if not hold:
            if not self.budget.take(n, wait=0):
                return False
            world.taken.append((world.time, n))
            return True
        request = BudgetRequest(self.budget, n, hold=True)
        allowed = bool(decide(request, wait=0))
        if allowed:
            self.reserved.append(Reserved(self, n, request))
        return allowed

    def settle(self, used: int) -> None:
        reserved = self.reserved.pop(0)
        used = min(used, reserved.units)
        reserved.settle(used)
        self.world.taken.append((reserved.counts_until, used))


class RollingWorld(period_world.World):
    site_class = RollingSite

    def __init__(self, sites: int, seed: int, weights: dict[str, int]) -> None:
        self.taken: deque[tuple[float, int]] = deque()
        super().__init__(sites, seed, weights)
        self.weights = WEIGHTS | weights

    @property
    def programs(self) -> list[RollingSite]:
        return [site for site in self.sites if isinstance(site, RollingSite)]

    async def step(self) -> None:
        rng, site = self.rng, self.rng.choice(self.programs)
        (action,) = rng.choices(list(self.weights), list(self.weights.values()))
        if action == "request":
            for _ in range(rng.choice((1, 6, 20))):
                site.request(rng.choice((1, 1, 1, 1, 2, 7)), hold=rng.random() < 0.05)
        elif action == "settle" and site.reserved:
            site.settle(rng.randrange(8))
        elif action == "exchange":
            await self.exchange(rng.choice(self.sites))
        elif action == "time":
            await self.pass_time(rng.choice((0.3, 1.0, 1.0, 2.0, 2.0, 3.0, 10.0, 25.0, 61.0)))
        elif action == "lose":
            self.lose_connection(site)
        elif action == "leave":
            await self.leave(site)
        elif action == "kill":
            self.lose_connection(site)
            site.end_process()
        elif action == "kill coordinator":
            await self.kill_server()
            self.start_server()
        self.time += STEP_S
        site.receive([])
        self.sites = [each for each in self.sites if not each.session.done]
        self.check()

    async def leave(self, site: RollingSite) -> None:
        """The program closes its client, which may be connected, and is started again."""
        with site.lock:
            site.budget.end()
            site.session.leave()
        if site.steps is not None:
            self.time += STEP_S
            site.receive([])
            await self.exchange(site)
        self.lose_connection(site)
        site.end_process()

    def check(self) -> None:
        while self.taken and self.taken[0][0] < self.time - 10 * WINDOW_S:
            self.taken.popleft()
        taken = sum(units for time, units in self.taken if time >= self.time - WINDOW_S)
        held = 0
        for reserved in (each for site in self.programs for each in site.reserved):
            reserved.update()
            held += reserved.units if reserved.counts_until >= self.time - WINDOW_S else 0
        if taken + held > LIMIT:
            raise Broken(f"{taken} units taken in the last window and {held} held, the limit is {LIMIT}")

    async def spend_the_rest(self) -> None:
        for site in self.programs:
            while site.reserved:
                site.settle(0)
        for _ in range(12):
            await self.pass_time(RULE.lease / 3)
            await self.deliver_all()
        taken, refused = 0, set[str]()
        while len(refused) < len(self.programs):
            for site in self.programs:
                if not site.budget.take(1, wait=0):
                    await self.deliver_all()
                    if not site.budget.take(1, wait=0):
                        refused.add(site.name)
                        continue
                taken += 1
        if taken != LIMIT:
            raise Broken(f"{taken} units taken at the end, of {LIMIT}")


async def play(seed: int, steps: int = 500, sites: int = 3, weights: dict[str, int] | None = None) -> str | None:
    """One random run; what was broken in it."""
    return await play_in(RollingWorld(sites, seed, weights or {}), RULE, seed, steps)
