"""A coordinator, processes and everything between them, and the actions that a seed can choose from."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

from countless.client.client import Client
from countless.client.counter import Counter as CountlessCounter
from countless.client.surroundings import ClientSurroundings
from countless.core.calendar import Per
from countless.core.random_source import RandomSource
from countless.errors import CountlessError, InvariantBroken
from countless.randomness import SystemRandom
from countless.server.sessions.session_table import Session
from countless.server.settings import Settings
from countless.server.tuning import Tuning
from countless.wire.frames import DownItem, HelloAck, IncarnationExpired
from countless.wire.keys import COUNTER, Key, key_of
from simulator.cluster import LEASE_S, SHARDS, Cluster
from simulator.coordinator import TICK_S, AnyTransport, Conditions, CoordinatorProcess, Service
from simulator.counter_rounds import CounterRounds
from simulator.family_steps import check_steps
from simulator.process import OpenTransport, Process, in_file
from simulator.reader import Reader
from simulator.spending import MINUTES, REST_S, Spending
from simulator.transcript import Transcript
from simulator.truth import Label, Truth, Undelivered, known_counts, known_labels
from simulator.virtual_loop import InlineExecutor

START_S = 30_000_000 * 60.0
DAY_S = 86_400.0
DISTRIBUTION = "ms"  # of the families of a profile, the one of values
LABELS, EPSILONS = 8, (0.2, 0.2, 0.1)  # of a family: so many labels; the smallest epsilon of all processes holds
SILENT_AFTER_S = 20.0
MAX_PLACES = 6
STORES = ("memory", "sqlite", "cluster")
_SOON_S = 0.03  # a session sends 5 ms after an event
_MAX_UNREST_S = 600.0  # until all is quiet, once everything is healed
_LOOK_S = 4.0  # whether it is
_CLUSTER_FAULTS = 2.0  # as many for each one that a single coordinator has: most do no harm


class OneStream(SystemRandom):
    """All random numbers of production, in the order in which they are drawn."""

    __slots__ = ("_rng",)

    def __init__(self, rng: RandomSource) -> None:
        self._rng = rng

    def randbelow(self, n: int) -> int:
        return self._rng.randbelow(n)

    def random(self) -> float:
        return self._rng.random()


@dataclass(frozen=True)
class Profile:
    """The contents of a world, and its faults: weights of the actions."""

    counters: tuple[str, ...] = ("hits",)
    windows: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    windows_of_families: bool = False
    jumps: tuple[float, ...] = (0.0,)  # of wall clocks, in seconds
    pauses: tuple[float, ...] = (0.005, 0.05, 0.5, 2.0, 10.0)  # between two actions
    latency: float = 0.02  # of the thread that saves, at most
    frame_bytes: int = 1 << 18
    store: str | None = None  # instead of one that the seed chooses
    start: float = 2.0
    kill: float = 2.0
    kill_at_a_store: float = 4.0  # of a process that has a file
    copy: float = 0.0  # of a state_dir
    close: float = 1.0
    cut: float = 4.0
    break_link: float = 6.0
    kill_coordinator: float = 2.0
    fill_disk: float = 1.0
    clock: float = 4.0
    back_up: float = 0.0
    restore: float = 0.0
    count: float = 40.0
    spend: float = 30.0
    fork: float = 0.0
    to_the_last: bool = False  # at the end the whole limit of its budgets is spent; no seed draws such a profile


class Place(NamedTuple):
    """A machine on which processes run, one after the other or several at once."""

    site: str
    directory: str  # for their state_dir


class Watched(NamedTuple):
    """An `Endpoint`: a process, the site whose counts it delivers, and the world that sees what it is sent."""

    world: "World"
    process: Process
    site: str

    def is_cut(self) -> bool:
        return self.world.now < self.process.cut_until

    def watch(self, transport: AnyTransport, items: list[DownItem]) -> None:
        self.world.watch(self.process, transport, items)

    def record(self, direction: int, frame: bytes) -> None:
        self.world.transcript.add(f"{self.site} {direction}", frame)


class World:
    """Must be made in the running loop. `store` is that of one coordinator, or "cluster": several behind a broker."""

    def __init__(
        self,
        rng: RandomSource,
        profile: Profile,
        store: str,
        scheme: str,
        sites: int,
        directory: Path | None,
        label_room: float = inf,
    ) -> None:
        """`label_room`: bytes that labels may take before sites are told to name no new ones."""
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self.profile = profile
        self.truth = Truth()
        self.transcript = Transcript()
        self.disk_is_full = False
        self.healed = False
        self.seen: Counter[str] = Counter()  # items that the coordinator has sent, by kind
        self.processes: list[Process] = []
        self._places = [Place(site, site) for site in (f"site-{number}" for number in range(sites))]
        self._directory = directory
        self._rounds = CounterRounds()
        self._spending = Spending(rng, profile.budgets, self._loop.time)
        settings = Settings(
            silent_after=SILENT_AFTER_S,
            remember_for=DAY_S,
            scheme=scheme,
            alpha=0.2,
            delta=1e-9,
            nats_shards=SHARDS,
            nats_lease=LEASE_S,
        )
        names = rng.spawn("names")
        random = OneStream(rng.spawn("system"))
        self._surroundings = ClientSurroundings(self._loop.time, self.true_clock, random, profile.frame_bytes)
        conditions = Conditions(
            settings,
            Tuning(
                prune_interval_s=4 * TICK_S,
                clock_readings=2,
                labels_nearly_full=label_room / (1e6 * settings.max_label_mb),
                sum_interval_s=1.0,
                max_frame_bytes=profile.frame_bytes,
                family_windows=3,
                rng=random,
                planning=InlineExecutor,
            ),
            disk_is_full=lambda: self.disk_is_full,
            delay=self._delay,
            true_clock=self.true_clock,
            new_name=lambda: f"{names.randbelow(1 << 64):016x}",
        )
        self.service: Service
        self._coordinator_faults = profile.kill_coordinator
        if store == "cluster":
            self.service = Cluster(rng, 2 + rng.randbelow(2), conditions)
            self._coordinator_faults *= _CLUSTER_FAULTS
        else:
            self.service = CoordinatorProcess(rng, store, conditions)

        labels = (f'{name}{{number="0"}}' for name in profile.families if name != DISTRIBUTION)
        watched = (*profile.counters[:1], *profile.windows, *profile.families, *labels)
        readers = rng.spawn("reader")
        name = watched[readers.randbelow(len(watched))]
        self._reader = Reader(name, profile.families, self.service, self.truth, readers, self.transcript)
        self._reading = self._loop.create_task(self._reader.run())

    async def close(self) -> None:
        self._reading.cancel()
        await self.service.close()
        for process in self.processes:
            process.kill()

    @property
    def now(self) -> float:
        return self._loop.time()

    def true_clock(self) -> float:
        return START_S + self.now

    # The network

    def _delay(self) -> float:
        return 0.001 if self.healed else self._rng.random() * (0.01, 0.1, 1.0)[self._rng.randbelow(3)]

    def _transport_of(self, process: Process, site: str) -> OpenTransport:
        return lambda notify: self.service.transport(Watched(self, process, site), notify)

    def watch(self, process: Process, transport: AnyTransport, items: list[DownItem]) -> None:
        for item in items:
            self.seen[type(item).__name__] += 1
            if isinstance(item, HelloAck) and transport is process.driver.transport:
                process.accepted = True
            if isinstance(item, IncarnationExpired):
                self._expire(process, transport)

    def _expire(self, process: Process, transport: AnyTransport) -> None:
        """Its incarnation may have been retired, and forgotten: what was sent is not sent again."""
        if transport is not process.driver.transport:
            for file in process.open_files:
                self.truth.add_lost(in_file(file))
        elif process.accepted:
            self.truth.add_lost(process.client.counted)

    # Actions

    async def act(self) -> None:
        profile = self.profile
        faults = 0.0 if self.service.restoring else 1.0  # processes that run connect before the restore is over
        actions: list[tuple[float, Callable[[], None]]] = [
            (profile.count, self._count),
            (profile.spend if profile.budgets else 0.0, self._spend),
            (profile.start, self.start),
            (profile.kill, self._kill),
            (profile.kill_at_a_store if self._directory else 0.0, self._kill_at_a_store),
            (profile.close, self._close),
            (faults * profile.cut, self._cut),
            (faults * profile.break_link, self._break_link),
            (faults * profile.clock, self._turn_clock),
            (faults * profile.fill_disk, self._fill_disk),
            (profile.back_up, self._back_up),
            (profile.copy if self._directory else 0.0, self._copy),
            (profile.fork, self._fork),
        ]
        last = profile.restore + self._coordinator_faults
        point = self._rng.random() * (sum(weight for weight, _ in actions) + last)
        for weight, action in actions:
            if point < weight:
                action()
                break
            point -= weight
        else:
            if point < profile.restore:
                await self._restore()
            else:
                await self.service.fail(self._choose(profile.pauses))
        await asyncio.sleep(self._choose(profile.pauses))
        self.check()

    def check(self) -> None:
        self.truth.check(self.service.servers())
        self._spending.check(self.service, self.processes)
        aware = [process for process in self.processes if not process.client.forked_unnoticed]
        self._rounds.check(self.service.servers(), aware)
        if not self.service.restoring:
            check_steps(self.service.servers(), aware)
        failure = self.service.failure()
        if failure is not None:
            raise InvariantBroken(failure)
        if self._reader.failure is not None:
            raise self._reader.failure

    def _choose(self, values: tuple[float, ...]) -> float:
        return values[self._rng.randbelow(len(values))]

    def _any(self) -> Process:
        return self.processes[self._rng.randbelow(len(self.processes))]

    def start(self, place: Place | None = None) -> None:
        """A process that counts something at once, or later."""
        if len(self.processes) >= 2 * len(self._places) and place is None:
            return
        place = place or self._places[self._rng.randbelow(len(self._places))]
        state_dir = None if self._directory is None else self._directory / place.directory
        process = Process(
            place.site, state_dir, self.service.endpoint, self._transport_of, self._surroundings, self._on_killed
        )
        process.offset = self._choose(self.profile.jumps) if not self._rng.randbelow(4) else 0.0
        if self.profile.families:
            process.epsilon = self._choose(EPSILONS)
        self.processes.append(process)
        if self._rng.randbelow(4):
            self.count(process)

    def _count(self) -> None:
        process = self._any()
        if process.client.open:
            self.count(process)

    def count(self, process: Process) -> None:
        names = self.profile.counters
        windows, families = self.profile.windows, self.profile.families
        if windows and self._rng.randbelow(2):
            self._count_in_window(process, windows[self._rng.randbelow(len(windows))], 1 + self._rng.randbelow(9))
        elif families and self._rng.randbelow(4):
            self._count_label(process, families[self._rng.randbelow(len(families))], 1 + self._rng.randbelow(30))
        elif len(names) > 5 and not self._rng.randbelow(3):
            for name in names:
                if not process.killed:
                    self.add(process, name, 1)
        else:
            self.add(process, names[self._rng.randbelow(len(names))], (1, 2, 30)[self._rng.randbelow(3)])

    def add(self, process: Process, name: str, n: int) -> None:
        if process.fuse.left is None:  # it is not killed meanwhile; half of the time of a seed with many counters
            process.client.counter(name).add(n)
            return self.truth.count(name, n)
        return self._counted(process, name, n, lambda: process.client.counter(name).add(n))

    def _counted(self, process: Process, name: str, n: int, count: Callable[[], None]) -> None:
        """If it was killed meanwhile, all events that it has in its file are counted, or none."""
        before = Counter[str | Label]() if process.client.forked_unnoticed else process.client.counted
        with process.fuse:
            count()
        added = process.client.counted - before
        if not added and process.killed:
            return
        [(counted, events)] = added.items()
        if events != n or key_of(COUNTER, counted[0] if isinstance(counted, tuple) else counted).name != name:
            raise InvariantBroken(f"{n} events of {name} are {added}")
        self.truth.count(counted, n)

    def _count_in_window(self, process: Process, name: str, n: int) -> None:
        self._counted(process, name, n, lambda: _series(process.client, name).add(n))

    def _count_label(self, process: Process, name: str, n: int) -> None:
        number = self._rng.randbelow(1 + self._rng.randbelow(LABELS))  # small ones are counted more often
        per: Per | None = "minute" if self.profile.windows_of_families else None

        def count() -> None:
            if name == DISTRIBUTION:
                process.client.distribution(name, epsilon=process.epsilon, accuracy=0.1, per=per).observe(
                    2.0**number, n
                )
            else:
                options: dict[str, Any] = {"epsilon": process.epsilon, "label_cap": LABELS - 1, "per": per}
                process.client.counter(name, family=True, **options).labels(number=number).add(n)

        self._counted(process, name, n, count)

    def _spend(self) -> None:
        process = self._any()
        if process.client.open:
            self._spending.act(process)

    def _fork(self) -> None:
        """A process forks in C, so that no hook runs; half of the time the child counts at once."""
        process = self._any()
        if process.client.open and len(self.processes) < 2 * len(self._places):
            child = process.fork(self._on_killed)
            self.processes.append(child)
            if self._rng.randbelow(2):
                self.count(child)

    def _kill(self) -> None:
        if len(self.processes) > 1:
            self._end(self._any())

    def _kill_at_a_store(self) -> None:
        """In the middle of one of its next changes to its file."""
        process, left = self._any(), self._rng.randbelow((2, 10, 60)[self._rng.randbelow(3)])
        if not process.client.forked_unnoticed:  # it has stored nothing of its own
            process.fuse.left = left

    def _on_killed(self, process: Process) -> None:
        self._end_if_there(process)
        self._loop.call_later(self._choose(self.profile.pauses), self._restart, self._place_of(process))

    def _place_of(self, process: Process) -> Place:
        return Place(process.site, process.site if process.state_dir is None else process.state_dir.name)

    def _restart(self, place: Place) -> None:
        if not self.healed:
            self.start(place)

    def _end(self, process: Process) -> None:
        """Kill it. Units that it holds stay admitted."""
        self.processes.remove(process)
        if process.state_dir is None:
            self.truth.add_lost(process.client.counted)
        process.kill()

    def _close(self) -> None:
        """It closes its client, and ends before that is done: what is not delivered stays in its state_dir."""
        if len(self.processes) > 1:
            process = self._any()
            with process.fuse:
                process.client.leave()
            self._loop.call_later(self._choose(self.profile.pauses), self._end_if_there, process)

    def _end_if_there(self, process: Process) -> None:
        if process in self.processes:
            self._end(process)
            if not self.processes:
                self.start(self._place_of(process))

    def _copy(self) -> None:
        """A state_dir is copied, while processes use it or after they were killed, and opened now or later; perhaps by
        a process of another site, and perhaps again.
        """
        source = self._places[self._rng.randbelow(len(self._places))]
        if (
            self._directory is None
            or len(self._places) > MAX_PLACES
            or not (self._directory / source.directory).exists()
        ):
            return
        site = self._places[self._rng.randbelow(len(self._places))].site
        copy = Place(site, f"copy-{len(self._places)}")
        copytree(self._directory / source.directory, self._directory / copy.directory)
        self._places.append(copy)
        for process in self.processes:
            process.copied = process.copied or self._place_of(process).directory == source.directory
        self._loop.call_later(self._choose((0.0, *self.profile.pauses)), self._restart, copy)

    def _cut(self) -> None:
        process = self._any()
        process.cut_until = self._loop.time() + self._choose((5.0, 30.0, 150.0))
        self._break_all(process)

    def _break_link(self) -> None:
        """Half of the time while something that it has just counted is under way."""
        process = self._any()
        if process.client.open and self._rng.randbelow(2):
            self.count(process)
        self._loop.call_later(self._rng.random() * _SOON_S, self._break_all, process)

    def _break_all(self, process: Process) -> None:
        for driver in process.drivers:
            if driver.transport.link is not None:
                driver.transport.link.break_down(self._rng)

    def _turn_clock(self) -> None:
        jump = self._choose(self.profile.jumps)
        if self._rng.randbelow(3):
            self._any().offset = jump
        else:
            self.service.turn_clock(jump)

    def _fill_disk(self) -> None:
        self.disk_is_full = not self.disk_is_full

    def _back_up(self) -> None:
        self.service.back_up()
        if not self.service.restoring:  # otherwise it may know no more than the copy before it
            self._spending.on_back_up()

    async def _restore(self) -> None:
        """The coordinator's state is replaced by the last copy. From then on the network works, until that is over."""
        self.disk_is_full = False
        for process in self.processes:
            process.cut_until = 0.0
        running = [process.client.site_id_of(Key(COUNTER, "")) for process in self.processes]
        restored = await self.service.restore(self._choose(self.profile.pauses))
        if restored is not None:
            before, copy = restored
            self._rounds.on_restored(self.processes)
            self.truth.on_restored(before.lost_with(copy, running))
            self._reader.on_restored()

    # The end

    async def heal(self) -> None:
        """Everything works from now on; at every site one more process starts, which finds what others have left."""
        self.healed, self.disk_is_full = True, False
        self._reader.stays = True
        self.service.heal()
        for process in [each for each in self.processes if not each.client.open]:
            self._end(process)
        for place in self._places:
            self.start(place)
        for process in self.processes:
            process.offset, process.cut_until, process.fuse.left = 0.0, 0.0, None
            self._use_everything(process)

    def _use_everything(self, process: Process) -> None:
        """So that it has a session with every shard: there it succeeds those of its site that have ended."""
        for name in self.profile.counters:
            self.add(process, name, 1)
        for name in self.profile.windows:
            self._count_in_window(process, name, 1)
        for name in self.profile.families:
            self._count_label(process, name, 1)
        self._spending.use_all(process)

    async def settle(self) -> None:
        """Wait until the world is quiet; an error if it is not after a long time."""
        unrest = _MAX_UNREST_S * (2 if self.service.restoring else 1)
        for _ in range(int(unrest / _LOOK_S)):
            await asyncio.sleep(_LOOK_S)
            self.check()
            trouble = self._trouble()
            if trouble is None:
                return
        raise InvariantBroken(f"not quiet {unrest:.0f} s after everything was healed: {trouble}")

    def _trouble(self) -> str | None:
        trouble = self.service.trouble()
        if trouble is not None:
            return trouble
        for process in self.processes:
            if not process.client.done and not process.client.connected:
                return f"a process of {process.site} is not connected: {process.client.error}"
            if process.recoveries or process.retrying:
                return f"a process of {process.site} delivers what others have left: {[*process.recoveries]}"
        if self.service.restoring:
            self.service.drop_ended()
            return "budgets wait after a restore"
        for server in self.service.servers():
            silent = [each.site_id for each in server.sessions if each.unreachable or each.connection is None]
            if silent:
                return f"{silent} cannot be reached"
            try:
                self.truth.check_answers(server)
            except CountlessError as error:
                return str(error)
        return self._reader.trouble()

    async def spend_the_rest(self) -> None:
        """Spend the whole limit, once all units have come back and a period has begun after those of wrong clocks."""
        if self.profile.to_the_last:
            self._spending.settle_all()
            until = self.true_clock() + max(REST_S, 2 * max(map(abs, self.profile.jumps)))
            await asyncio.sleep(MINUTES.bounds(MINUTES.period_at(until) + 1)[0] - self.true_clock() + 1.0)
            await self._spending.spend_the_rest(self.processes)
            self.check()

    async def close_all(self) -> Undelivered:
        """All programs close their clients. What could not be delivered."""
        for process in self.processes:
            process.client.leave()
        for _ in range(int(_MAX_UNREST_S / _LOOK_S)):
            await asyncio.sleep(_LOOK_S)
            done = all(process.client.done for process in self.processes)
            trouble: str | None = "not all is delivered"
            if done:
                trouble = self.service.trouble() or self._still_member() or self._reader.trouble()
            if trouble is None:
                break
        else:
            raise InvariantBroken(f"a client cannot be closed: {trouble}")
        kept = Undelivered(Counter(), Counter())
        for process in self.processes:
            kept.events.update(process.client.counts)
            kept.labels.update(
                {label: n for label, n in process.client.labels.items() if key_of(COUNTER, label[0]).is_window}
            )
        return kept

    def record_answers(self) -> None:
        """Record the final answers of the coordinators."""
        for server in self.service.servers():
            published = {name: counter.largest_published for name, counter in server.counters.items()}
            for known in (known_counts(server), known_labels(server), published):
                self.transcript.add("answers", repr(sorted(known.items())).encode())

    def _still_member(self) -> str | None:
        """A member of a counter or window, although its client is closed and all is delivered."""
        closed = {
            site_id for process in self.processes if process.client.delivered for site_id in process.client.site_ids
        }
        sessions = (session for server in self.service.servers() for session in server.sessions)
        found = {each.site_id: counted for each in sessions if each.site_id in closed and (counted := _counted(each))}
        return f"clients are closed, and still members: {found}" if found else None


def _counted(session: Session) -> list[Key]:
    return sorted(key for key in session.members if key.kind == COUNTER)


def _series(client: Client, name: str) -> CountlessCounter:
    """A counter with windows, or one of its series: `clicks`, `clicks{route="/a"}`."""
    counter = client.counter(name.partition("{")[0], per="minute")
    return counter.labels(**dict(re.findall(r'(\w+)="([^"]*)"', name)))
