"""Sites that count in windows, and a real site server, against an exact count for each site's clock and window.

Everything that happens is drawn from one seed: events, clocks of sites and of the coordinator that jump, connections
that are lost with what was under way, sites that are killed, sessions that time out and are retired, restarts of the
coordinator before or after a save, with or without the messages of that save.

`Site` of the core is the real one. What a site does with its windows is written down here in its simplest form: it
counts in max(window of its clock, watermark), leaves windows in order, and keeps a count until it is acknowledged.
"""

import asyncio
from random import Random

from countless.core.messages import SetTrigger, SiteId, StartRound
from countless.core.periods.window import Window, WindowRule, WindowState
from countless.core.site import Site
from countless.errors import InvariantBroken, ProtocolError
from countless.randomness import SeededRandom
from countless.server.kinds.counter import WindowedCounter
from countless.server.sessions.members import id_in
from countless.server.sessions.session_table import Session
from countless.server.settings import Config
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import (
    VERSION,
    DownItem,
    Hello,
    HelloAck,
    IncarnationRetired,
    Join,
    Leave,
    LeaveAck,
    Sync,
    SyncAck,
    UpItem,
)
from support.site_server import FakeConnection, SiteServerHarness
from support.tombstones import shown

HOUR = 3600
FIRST = 490_000
KEEP = 4
SILENT_AFTER = 10.0


class Broken(AssertionError):
    """Something that must hold does not."""


class LostConnection(FakeConnection):
    """What is sent to it does not arrive once `lost` is set."""

    lost = False

    def send(self, items: list[DownItem]) -> None:
        if not self.lost:
            super().send(items)


class ModelSite:
    """One process. A killed one is replaced by another of the same name."""

    def __init__(self, name: str, incarnation: int, counter: str, skew: float) -> None:
        self.name, self.incarnation, self.counter, self.skew = name, incarnation, counter, skew
        self.windows: dict[int, Site] = {}
        self.finished: set[int] = set()  # to be left
        self.watermark = 0
        self.joined: set[int] = set()  # on this connection
        self.session: Session | None = None
        self.connection: LostConnection | None = None

    @property
    def site_id(self) -> SiteId:
        return SiteId(self.name, self.incarnation)

    def wire_name(self, period: int) -> str:
        return f"{self.counter}@hour:{period}"

    def window(self, period: int, count: int = 0) -> Site:
        if period not in self.windows:
            rng = SeededRandom(period)
            self.windows[period] = Site(self.wire_name(period), self.site_id, rng, count=count)
        return self.windows[period]

    def present(self, now: float) -> int:
        return max(int((now + self.skew) // HOUR), self.watermark)

    def join_items(self, period: int) -> list[UpItem]:
        site = self.windows[period]
        self.joined.add(period)
        return [Join(*site.snapshot()), *site.resend()]

    def leave_items(self, period: int) -> list[UpItem]:
        items = [] if period in self.joined else self.join_items(period)
        return [*items, Leave(*self.windows[period].snapshot())]

    def renew(self, known: dict[str, int]) -> None:
        """As a new incarnation, with the events that the coordinator does not know."""
        self.incarnation += 1
        windows, self.windows, self.joined = self.windows, {}, set()
        delivered_before = known.get(f"{self.counter}@hour", 0)
        for period, site in windows.items():
            delivered = site.count if period < delivered_before else known.get(self.wire_name(period), 0)
            if delivered > site.count:
                raise Broken(f"{self.site_id} counted {site.count} in {period}: the coordinator knows {delivered}")
            self.window(period, site.count - delivered)
        self.watermark = max(self.watermark, delivered_before)
        self.finished = {period for period in windows if period < self.watermark}


class Ghost:
    """A process that was killed with events that it had not reported, and is still a member of windows."""

    def __init__(self, counter: str, hidden: dict[int, int], members: list[int], present: int) -> None:
        self.counter, self.hidden, self.members = counter, hidden, members
        self.present = present  # the smallest that the coordinator has shown since then

    def may_be_lost(self) -> set[int]:
        """Windows that the coordinator must call incomplete once it has retired the site."""
        if not self.members:
            return set()
        last = min(max(self.present, *self.members), max(self.members) + KEEP)
        return {each for each, number in self.hidden.items() if number and min(self.members) <= each <= last}


class World:
    silent_after = SILENT_AFTER

    def __init__(self, seed: int, sites: int, labels: bool) -> None:
        self.rng = Random(seed)  # noqa: S311
        self.now = float(FIRST * HOUR + self.rng.randrange(HOUR))
        self.clock_error = 0.0  # of the coordinator
        self.store = MemoryStore()
        self.counters = ['hits{route="a"}', 'hits{route="b"}', 'hits{route="c"}'] if labels else ["hits"]
        self.sites = [
            ModelSite(f"web-{number}", 1, self.counters[number % len(self.counters)], self.rng.gauss(0, HOUR / 4))
            for number in range(sites)
        ]
        self.truth: dict[str, dict[int, int]] = {}  # by the coordinator's counter and window
        self.unseen: dict[str, dict[int, int]] = {}  # of those, events that the coordinator cannot know of
        self.ghosts: dict[SiteId, Ghost] = {}
        self.lost: dict[str, set[int]] = {}  # windows that have lost a site with events
        self.published: dict[str, float] = {}
        self.harness = self._start()

    # The coordinator

    def _start(self) -> SiteServerHarness:
        harness = SiteServerHarness(
            self.store, lambda: self.now + self.clock_error, label_cap=1, silent_after=self.silent_after
        )
        self.task = asyncio.create_task(harness.server.run())
        if not harness.server.counters:
            windows = WindowRule("hour", keep=KEEP)
            scheme = self.rng.choice(["exact", "deterministic"])
            harness.server.create("hits", Config(0.2, 0.1, scheme, label_cap=1, windows=windows))
        return harness

    async def restart(self) -> None:
        """Without saving what is not saved yet. Perhaps a save happens, and its messages are lost."""
        if self.rng.random() < 0.5:
            for site in self.sites:
                if site.connection is not None:
                    site.connection.lost = True
            await self.harness.server.flush()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.harness.server.stop_threads()
        for site in self.sites:
            site.session = site.connection = None
        self.harness = self._start()
        await self.harness.server.flush()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.harness.server.stop()

    def home_of(self, counter: str) -> str:
        """Where the coordinator counts the events of this series."""
        return counter if counter in self.harness.server.counters else 'hits{overflow="true"}'

    def windowed(self, name: str) -> WindowedCounter:
        counter = self.harness.server.counters[name]
        assert isinstance(counter, WindowedCounter)
        return counter

    # What sites do

    def send(self, site: ModelSite, items: list[UpItem]) -> None:
        if site.session is None or site.connection is None:
            return
        if self.rng.random() < 0.03:  # lost, and the connection with it
            self.disconnect(site)
        elif site.connection.close_reason is None:
            self.harness.server.on_frame(site.session, site.connection, items, 10)

    def add(self, site: ModelSite, number: int) -> None:
        period = site.present(self.now)
        window = site.window(period)
        reports = window.add(number)
        self.count(site.counter, period, number)
        if period not in site.joined:
            self.send(site, site.join_items(period))
        elif reports:
            self.send(site, list(reports))

    def count(self, counter: str, period: int, number: int) -> None:
        truth = self.truth.setdefault(counter, {})
        truth[period] = truth.get(period, 0) + number

    def prepare(self, site: ModelSite) -> None:
        period = site.present(self.now)
        if period in site.windows and period + 1 not in site.windows:
            site.window(period + 1)
            self.send(site, site.join_items(period + 1))

    def finish(self, site: ModelSite) -> None:
        period, present = min(site.windows.keys() - site.finished, default=None), site.present(self.now)
        if period is not None and period < present:
            site.watermark = period + 1
            site.finished.add(period)
            self.send(site, site.leave_items(period))

    def disconnect(self, site: ModelSite) -> None:
        if site.session is not None and site.connection is not None:
            self.harness.server.on_disconnect(site.session, site.connection)
            site.connection.lost = True
        site.session = site.connection = None

    async def connect(self, site: ModelSite) -> None:
        self.disconnect(site)
        connection = LostConnection()
        session = await self.harness.server.on_hello(connection, Hello(VERSION, site.name, site.incarnation))
        if session is None:
            [retired] = connection.received
            assert isinstance(retired, IncarnationRetired)
            site.renew(dict(retired.known_counts))
            return
        site.session, site.connection, site.joined = session, connection, set()
        items: list[UpItem] = []
        for period in sorted(site.windows):
            items += site.leave_items(period) if period in site.finished else site.join_items(period)
        self.send(site, [*items, Sync(1)])

    async def exchange(self) -> None:
        """Everything so far is saved, and what was sent arrives."""
        await self.harness.server.flush()
        for site in self.sites:
            received, connection = [], site.connection
            if connection is not None:
                received, connection.received = connection.received, []
            for item in received:
                if isinstance(item, LeaveAck):
                    period = int(item.counter.rpartition(":")[2])
                    site.windows.pop(period, None)
                    site.finished.discard(period)
                elif isinstance(item, StartRound | SetTrigger):
                    period = int(item.counter.rpartition(":")[2])
                    replies = site.windows[period].receive(item) if period in site.windows else ()
                    if replies and site.connection is connection:
                        self.send(site, list(replies))
                elif not isinstance(item, HelloAck | SyncAck):
                    raise Broken(f"{site.site_id} received {item}")
            if connection is not None and connection.close_reason is not None:
                self.disconnect(site)

    async def kill(self, site: ModelSite) -> None:
        """Events that the coordinator does not know are lost. Another process takes the name."""
        await self.harness.server.flush()
        server, hidden = self.harness.server, dict[int, int]()
        session, counter = server.sessions.get(site.site_id), self.home_of(site.counter)
        names = (
            {} if session is None else {str(key): id_in(session, key, each) for key, each in session.members.items()}
        )
        members = [] if session is None else [key.period for key in session.members]
        left = dict(shown(self.store.tombstones(site.site_id))).get(f"{site.counter}@hour", 0)
        for period, window in site.windows.items():
            name = site.wire_name(period)
            known = dict(shown(self.store.tombstones(site.site_id))).get(name, 0)
            if name in names:
                tracker = self.windowed(counter).open[period]
                known = tracker.coordinator.reported_by(names[name])
            elif period < left:
                known = window.count
            hidden[period] = window.count - known
        self.disconnect(site)
        self.ghosts[site.site_id] = Ghost(site.counter, hidden, members, self.present)
        self._replace(self.sites.index(site))

    def _replace(self, number: int) -> None:
        site = self.sites[number]
        self.sites[number] = ModelSite(site.name, site.incarnation + 1, site.counter, self.rng.gauss(0, HOUR / 4))

    @property
    def present(self) -> int:
        """The window of the coordinator's clock."""
        return int((self.now + self.clock_error) // HOUR)

    def note_present(self) -> None:
        for ghost in self.ghosts.values():
            ghost.present = min(ghost.present, self.present)

    def _lay_ghosts(self) -> None:
        """Those that were retired are lost to their windows."""
        for site_id, ghost in list(self.ghosts.items()):
            if site_id not in self.harness.server.sessions or not ghost.members:
                del self.ghosts[site_id]
                self.lost.setdefault(ghost.counter, set()).update(ghost.may_be_lost())
                unseen = self.unseen.setdefault(ghost.counter, {})
                for period, number in ghost.hidden.items():
                    unseen[period] = unseen.get(period, 0) + number

    # What must hold

    def check(self) -> None:
        """When everything is saved."""
        self._lay_ghosts()
        for name, counter in self.harness.server.counters.items():
            assert isinstance(counter, WindowedCounter)
            largest = counter.largest_published
            if largest < self.published.get(name, 0):
                raise Broken(f"the published total of {name} fell from {self.published[name]} to {largest}")
            self.published[name] = largest
            self._check_windows(name, counter)

    def _counters_at(self, home: str) -> list[str]:
        return [counter for counter in self.counters if self.home_of(counter) == home]

    def _true(self, home: str, period: int) -> int:
        return sum(self.truth.get(counter, {}).get(period, 0) for counter in self._counters_at(home))

    def _check_windows(self, home: str, counter: WindowedCounter) -> None:
        for window in counter.youngest():
            true = self._true(home, window.period)
            if window.state is WindowState.CLOSED:
                self._check_closed(home, window)
            elif window.lower > true:
                raise Broken(f"{window} has {true} events")
        everything = sum(sum(self.truth.get(each, {}).values()) for each in self._counters_at(home))
        if counter.known_total > everything or counter.published_answer.lower > everything:
            raise Broken(f"{home} has {counter.known_total} events of {everything}: {counter.published_answer}")

    def _check_closed(self, home: str, window: Window) -> None:
        period, total = window.period, window.estimate
        true = self._true(home, period)
        unseen = sum(self.unseen.get(each, {}).get(period, 0) for each in self._counters_at(home))
        if any(period in self.lost.get(each, ()) for each in self._counters_at(home)):
            raise Broken(f"{window} has lost a site, and does not say so")
        away = 0  # of sites that the coordinator does not know to be in this window or an earlier one
        for site_id, ghost in self.ghosts.items():
            if self.home_of(ghost.counter) == home and ghost.hidden.get(period):
                if min(ghost.members, default=period + 1) <= period:
                    raise Broken(f"{window}: {site_id} has not finished it")
                away += ghost.hidden[period]
        for site in self.sites:
            if self.home_of(site.counter) != home or period not in site.windows:
                continue
            session = self.harness.server.sessions.get(site.site_id)
            keys = {} if session is None else session.members
            if any(key.period <= period for key in keys):
                raise Broken(f"{window}: {site.site_id} has not finished it")
            away += site.windows[period].count
        if not true - unseen - away <= total <= true - unseen:
            raise Broken(f"{window} has {true} events, {unseen} of them unseen, at most {away} away")

    async def settle(self) -> None:
        """All clocks are right, all sites connect and finish what they have. Then everything is known."""
        self.clock_error = 0.0
        periods = [period for site in self.sites for period in site.windows]
        for counter in self.harness.server.counters:
            periods += self.windowed(counter).open
        self.now = max(self.now, (max(periods, default=0) + 2.0) * HOUR)
        for site in self.sites:
            site.skew = 0.0
        for _ in range(8):
            for site in self.sites:
                if site.connection is None or site.connection.close_reason is not None:
                    await self.connect(site)
                for _ in range(len(site.windows)):
                    self.finish(site)
            await self.exchange()
            self.harness.time += 2 * SILENT_AFTER
            self.harness.server.tick()
            await self.exchange()
            self.check()
        if any(site.windows for site in self.sites) or self.ghosts:
            raise Broken(f"not everything was delivered: {[site.windows for site in self.sites]}, {self.ghosts}")
        self._check_settled()

    def _check_settled(self) -> None:
        for home, counter in self.harness.server.counters.items():
            assert isinstance(counter, WindowedCounter)
            series = self._counters_at(home)
            everything = sum(sum(self.truth.get(each, {}).values()) for each in series)
            unseen = sum(sum(self.unseen.get(each, {}).values()) for each in series)
            if counter.known_total != everything - unseen:
                raise Broken(f"{home} has {counter.known_total} of {everything} events; {unseen} are lost")
            if any(self.windowed(home).open):
                raise Broken(f"windows of {home} are open: {sorted(counter.open)}")
            for window in counter.youngest():
                unseen_here = sum(self.unseen.get(each, {}).get(window.period, 0) for each in series)
                if window.estimate != self._true(home, window.period) - unseen_here:
                    raise Broken(f"{window} has {self._true(home, window.period)} events, {unseen_here} unseen")


async def play(seed: int, steps: int = 150, sites: int = 3, labels: bool = False) -> str | None:
    """What went wrong, with the seed; None if nothing did."""
    world = World(seed, sites, labels)
    try:
        for step in range(steps):
            await _step(world)
            world.note_present()
            if step % 4 == 3:
                await world.exchange()
                world.check()
        await world.settle()
    except (Broken, ProtocolError, InvariantBroken) as error:
        return f"seed {seed}, labels {labels}: {error}"
    finally:
        await world.stop()
    return None


async def _step(world: World) -> None:
    rng, site = world.rng, world.rng.choice(world.sites)
    what = rng.choices(list(_STEPS), list(_STEPS.values()))[0]
    if what == "add":
        world.add(site, rng.choice([1, 1, 1, 7, 100]))
    elif what == "time":
        world.now += rng.choice([60, 600, HOUR / 2, HOUR])
    elif what == "exchange":
        await world.exchange()
    elif what == "prepare":
        world.prepare(site)
    elif what == "finish":
        world.finish(site)
    elif what == "disconnect":
        world.disconnect(site)
    elif what == "connect":
        await world.connect(site)
    elif what == "kill":
        await world.kill(site)
    elif what == "restart":
        await world.restart()
    elif what == "coordinator's clock":
        world.clock_error = rng.choice([0, 0, rng.gauss(0, HOUR), rng.choice([-5, 5, 100]) * HOUR])
    elif what == "site's clock":
        site.skew = rng.choice([0, rng.gauss(0, HOUR / 2), rng.choice([-3, 3]) * HOUR])
    elif what == "tick":
        world.harness.time += rng.choice([1, 3, SILENT_AFTER + 1, 6 * SILENT_AFTER])
        world.harness.server.tick()
    else:
        world.harness.server.drop_site(site.name)


_STEPS = {
    "add": 40, "time": 8, "exchange": 15, "prepare": 6, "finish": 12, "disconnect": 4, "connect": 10, "kill": 1.5,
    "restart": 3, "coordinator's clock": 2, "site's clock": 2, "tick": 10, "drop": 1.5,
}  # fmt: skip
