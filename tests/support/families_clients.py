"""Clients that count labels and values, and a site server, all of them the production classes, under one seed.

Connections keep the order of frames, and lose what is under way when they end. Processes and the coordinator are killed
between any two steps; a copy of the coordinator's state is restored. What a process counted is in memory, or in a file
that the next process finds. Two processes share the name of a site, so that the coordinator retires incarnations.

| checked                                              | when                                                         |
|------------------------------------------------------|--------------------------------------------------------------|
| no label, and not the total, is counted twice        | after every step: lower bounds                               |
| every label, the total, the top and quantiles hold   | when nothing is under way and all sites are connected        |
| sums and widths: `FamilyCoordinator.check`           | likewise                                                     |
| every label and the total is exact                   | when all processes have left                                 |

Of a process that kept counts in memory and was killed, the coordinator may know any part.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import count
from math import ceil
from pathlib import Path
from random import Random
from threading import RLock

from countless.client.durable.count_file import CountFile
from countless.client.durable.family import FamilyKey, FamilyRecords
from countless.client.durable.recovery import _families_in as families_in
from countless.client.families.local_family import LocalFamily
from countless.client.session.protocol import SiteSession
from countless.core.answer import State
from countless.core.family.messages import OVERFLOW
from countless.core.family.rule import LABELS, VALUES, FamilyRule
from countless.core.messages import SiteId
from countless.errors import CountlessError
from countless.server.sessions.family_windows import AnyFamily
from countless.server.storage.memory_store import MemoryStore
from support.windows_clients import Broken, Stream, World, running

RULES = {"pages": FamilyRule(LABELS, 0.2), "ms": FamilyRule(VALUES, 0.2, 0.1)}
NAMES = [f'{{page="{number}"}}' for number in range(12)]
CAP = 8
WEIGHTS = {
    "count": 450,
    "exchange": 380,
    "time": 100,
    "lose": 25,
    "kill": 6,
    "kill coordinator": 8,
    "settle": 6,
    "smaller epsilon": 1,
}


class Process(Stream):
    """A process that counts. `directory`: where its counts are; None: in memory."""

    def __init__(self, world: "FamilyWorld", site: str, directory: Path | None) -> None:
        site_id = SiteId(site, next(world.incarnations))
        self.file = None if directory is None else CountFile.create(directory, site_id)
        self.lock = RLock()
        super().__init__(world, SiteSession(site_id, self.lock, lambda: None, world.clock), self.file)
        self.site = site
        self.truth: Counter[tuple[str, str]] = Counter()  # by family and label
        self.families = {name: self._family(name, rule) for name, rule in world.rules.items()}

    def _family(self, name: str, rule: FamilyRule) -> LocalFamily:
        records = None if self.file is None else FamilyRecords(FamilyKey(name, rule), self.file)
        family = LocalFamily(name, rule, CAP, self.lock, self.session.queue_family, records)
        self.session.add_family(name, family)
        return family

    def add(self, name: str, label: str, n: int) -> None:
        family = self.families[name]
        with self.lock:
            home = family._site.home(label)
            family.add(label, n)
        self.truth[name, home] += n

    def close(self) -> None:
        with self.lock:
            for family in self.families.values():
                family.close()
            self.session.leave()


class Recovery(Stream):
    """Another process delivers what one that was killed has left in its file."""

    def __init__(self, world: "FamilyWorld", file: CountFile) -> None:
        session = SiteSession(file.site_id, RLock(), lambda: None, world.clock)
        super().__init__(world, session, file)
        self.windows: list[tuple[str, int]] = []
        for name, family in families_in(file).items():
            session.add_family(name, family)
        session.has_work = True
        session.leave()


class FamilyWorld(World):
    processes: list[Process]  # type: ignore[assignment]
    recoveries: list[Recovery]  # type: ignore[assignment]

    def __init__(self, sites: int, seed: int, weights: dict[str, int], directory: Path | None) -> None:
        self.rng = Random(seed)  # noqa: S311
        self.weights = WEIGHTS | weights
        self.directory = directory
        self.time = self.offset = 0.0
        self.rules = dict(RULES)
        self.incarnations = count(1)
        self.events: Counter[tuple[str, str]] = Counter()  # type: ignore[assignment]  # in truth
        self.at_risk: Counter[tuple[str, str]] = Counter()  # of processes that kept counts in memory and were killed
        self.lost = set()
        self.store = MemoryStore()
        self.processes = [Process(self, f"site-{number // 2}", directory) for number in range(sites)]
        self.recoveries = []

    # Steps

    async def step(self) -> None:
        rng, process = self.rng, self.rng.choice(self.processes)
        (action,) = rng.choices(list(self.weights), list(self.weights.values()))
        if action == "count":
            self.count(process)
        elif action == "exchange":
            await self.exchange(rng.choice(self.streams))
        elif action == "time":
            await self.pass_time(rng.choice((1.0, 5.0, 25.0, 61.0)))
        elif action == "lose":
            self.lose_connection(rng.choice(self.streams))
        elif action == "kill":
            self.kill_process(process)
        elif action == "kill coordinator":
            await self.kill_server()
            self.start_server()
        elif action == "settle":
            await self.settle()
        elif action == "smaller epsilon":  # of processes that start from now on
            self.rules = {name: FamilyRule(rule.kind, rule.epsilon / 2, rule.accuracy) for name, rule in RULES.items()}
        self.time += 0.01
        for stream in self.streams:
            stream.receive([])
        self.check()

    def count(self, process: Process) -> None:
        rng = self.rng
        name = rng.choice(list(RULES))
        if name == "pages":
            label = NAMES[min(int(rng.paretovariate(0.7)) - 1, len(NAMES) - 1)]
        else:
            label = RULES["ms"].buckets.label(float(int(rng.paretovariate(1.0))))
        n = rng.choice((1, 1, 2, 60))
        before = Counter(process.truth)
        process.add(name, label, n)
        self.events += process.truth - before

    def kill_process(self, process: Process) -> None:
        self.lose_connection(process)
        self.processes[self.processes.index(process)] = Process(self, process.site, self.directory)
        if process.file is None:
            self.at_risk += process.truth
            return
        process.file.release()
        assert process.file.path is not None
        orphan = CountFile.open_orphan(process.file.path)
        if orphan is not None:
            self.recoveries.append(Recovery(self, orphan))

    def end_recoveries(self) -> None:
        for recovery in [each for each in self.recoveries if each.session.done]:
            self.recoveries.remove(recovery)
            if not recovery.session.delivered:
                raise Broken("a file was not delivered")

    # Checks

    def truth(self, name: str) -> Counter[str]:
        return Counter({label: n for (family, label), n in self.events.items() if family == name})

    def risk(self, name: str) -> Counter[str]:
        return Counter({label: n for (family, label), n in self.at_risk.items() if family == name})

    def check(self) -> None:
        """At any moment: nothing is counted twice."""
        for name, family in self.server.families.by_name.items():
            truth = self.truth(name)
            for label, known in family.coordinator.known.items():
                if known > truth[label]:
                    raise Broken(f"{name}{label}: {known} known, in truth {truth[label]}")
            if family.coordinator.total().lower > truth.total():
                raise Broken(f"{name}: {family.coordinator.total()}, in truth {truth.total()}")

    async def settle(self) -> None:
        """Nothing goes wrong any more, and all is delivered: the bounds hold."""
        await self.deliver_all()
        self.end_recoveries()
        await self.pass_time(25.0)
        await self.deliver_all()
        for name, family in self.server.families.by_name.items():
            family.coordinator.check()
            self.check_bounds(name, family)

    def check_bounds(self, name: str, family: AnyFamily) -> None:
        truth, risk, coordinator = self.truth(name), self.risk(name), family.coordinator
        members = {process.session.site_id for process in self.processes if process.families[name].active}
        if coordinator.state is State.LEARNING:
            raise Broken(f"{name} is learning")
        if not risk and (coordinator.state is State.DEGRADED or coordinator.sites != len(members)):
            raise Broken(f"{name}: {coordinator.state}, {coordinator.sites} sites, not {len(members)}")
        total, width = coordinator.total(), 2 * family.rule.epsilon * truth.total()
        if not total.lower <= truth.total() <= total.upper + risk.total() or total.upper - total.lower > width:
            raise Broken(f"{name}: {total}, in truth {truth.total()}")
        for label, events in truth.items():
            answer = coordinator.answer(label)
            if family.rule.kind == LABELS and not answer.lower <= events <= answer.upper + risk[label]:
                raise Broken(f"{name}{label}: {answer}, in truth {events}")
        if not risk:
            self.check_top_or_quantiles(family, truth)

    def check_top_or_quantiles(self, family: AnyFamily, truth: Counter[str]) -> None:
        if family.rule.kind == LABELS:
            share = family.rule.epsilon
            listed = {each.label for each in family.top(share).labels}
            missing = {label for label, n in truth.items() if n >= share * truth.total() and label not in listed}
            if missing - {OVERFLOW}:
                raise Broken(f"{missing} are missing in the top of {family.name}")
            return
        values = sorted(_values(family.rule, truth))
        for q in (0.1, 0.5, 0.9):
            (found,) = family.quantiles([q])
            exact = values[max(1, ceil(q * len(values))) - 1]
            if OVERFLOW not in truth and not found.lower <= exact <= found.upper:
                raise Broken(f"{found}, in truth {exact}")

    async def close(self) -> None:
        """All processes are closed: what the coordinator has are all events."""
        for process in self.processes:
            process.close()
        await self.deliver_all()
        self.end_recoveries()
        for process in self.processes:
            if not process.session.delivered:
                raise Broken(f"{process.site} has not left")
        self.check()
        for name in RULES:
            truth, risk = self.truth(name), self.risk(name)
            family = self.server.families.by_name.get(name)
            known: Counter[str] = Counter() if family is None else Counter(family.coordinator.known)
            total = 0 if family is None else family.coordinator.total().lower
            short = {label: n - known[label] for label, n in truth.items() if n - known[label] > risk[label]}
            if short or truth.total() - total > risk.total():
                raise Broken(f"{name}: {short} are missing, and {truth.total() - total} of the total")
            if family is not None and not risk and family.coordinator.state is not State.EXACT:
                raise Broken(f"{name} is {family.coordinator.state}")


def _values(rule: FamilyRule, truth: Counter[str]) -> Iterator[float]:
    """The middle of its bucket, for each observation."""
    for label, n in truth.items():
        if label != OVERFLOW:
            yield from [rule.buckets.middle(None if label == "zero" else int(label))] * n


async def play(
    seed: int, directory: Path | None, steps: int = 400, sites: int = 4, weights: dict[str, int] | None = None
) -> str | None:
    """One random run; what was broken in it."""
    own = None if directory is None else directory / str(seed)
    async with running(FamilyWorld(sites, seed, weights or {}, own)) as world:
        try:
            for _ in range(steps):
                await world.step()
            await world.settle()
            await world.close()
        except (Broken, CountlessError, asyncio.InvalidStateError) as error:
            return f"seed {seed}: {error!r}"
    return None
