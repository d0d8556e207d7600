"""The faulty world: production sites and coordinator on a network that fails, from one integer seed (SPEC section 6).

Time goes in ticks. Messages travel as bytes and take time. In ordered weather they travel on connections, like TCP: in
order, until the connection breaks and all that is under way on it is lost; a site that reconnects says hello and then
again all that may have been lost. In unordered weather every message finds its own way, may be lost and may come
twice. Sites stop and come back, with their state or without; the coordinator stops and goes on from what it
saved. The truth is known throughout: see `accounted`.
"""

from heapq import heappop, heappush

from countless.core.coordinator import Coordinator, Outbox, PersistentState
from countless.core.estimator import Scheme
from countless.core.messages import DownMessage, Message, SiteId, SiteName, Snapshot, UpMessage
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.errors import InvariantBroken
from countless.lab.simulation.faults import FaultProfile
from countless.lab.simulation.owner import Owner
from countless.lab.simulation.world import COUNTER
from countless.randomness import SeededRandom
from countless.wire.codec import decode, encode


class Machine:
    """The machine a site runs on: it may be down, and its connection may be broken."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.line = 0  # number of the open connection; 0: none
        self.down_until = 0
        self.cut_until = 0  # no connection before this tick
        self.heard = 0  # when the coordinator last heard of it
        self.silenced = False
        self.leaving = False
        self.loses_state = False  # will come back as another life
        self.last_arrival = [0, 0]  # when the connection's last message, up and down, will have arrived


class FaultyWorld:
    """Everything that can go wrong between sites and coordinator."""

    def __init__(
        self, scheme: Scheme, sites: int, profile: FaultProfile, *, alpha: float, delta: float, seed: int
    ) -> None:
        self._rng = SeededRandom(seed)
        self._chance = self._rng.spawn("faults")
        self._scheme, self._alpha, self._delta = scheme, alpha, delta
        self.profile = profile
        self.now = 0
        self.finished = 0  # the exact counts of the sites that left in good order
        self.lost = 0  # events that died with a site, before any report (some may still be under way)
        self._lines = self._messages = 0
        self._away_until = 0  # until when the coordinator is down
        self._post: list[tuple[int, int, int, SiteId, str, bytes]] = []  # (tick, number, line, address, kind, data)
        self._fleet = [SiteId(name) for name in range(sites)]
        self._names = sites  # the next newcomer's
        self.owner = Owner(self._build, self._fleet)
        self.machines: dict[SiteName, Machine] = {}
        for site_id in self._fleet:
            self._enter(site_id, self.owner.coordinator.trigger_of(site_id))

    def _build(self, saved_state: PersistentState | None) -> Coordinator:
        rng = self._rng.spawn("coordinator", saved_state.round if saved_state else 0)
        fleet = () if saved_state else self._fleet
        return Coordinator(
            COUNTER, self._scheme, rng, alpha=self._alpha, delta=self._delta, fleet=fleet, saved_state=saved_state
        )

    def __repr__(self) -> str:
        return f"<FaultyWorld at tick {self.now}: {self.owner.coordinator.answer}; truth {self.counted:,}>"

    # The truth

    @property
    def counted(self) -> int:
        """All events whose count still exists: at sites that live or left in good order, or known of dead ones."""
        dead = sum(self.owner.known(site_id) for site_id in self._dying())
        living = sum(machine.site.count for machine in self.machines.values() if not machine.loses_state)
        return self.finished + self.owner.buried + dead + living

    def _dying(self) -> list[SiteId]:
        """Lives that have ended, which the coordinator does not know yet."""
        present = {machine.site.site_id for machine in self.machines.values() if not machine.loses_state}
        leaving = {machine.site.site_id for machine in self.machines.values() if machine.leaving}
        return [site_id for site_id in self.owner.lives.values() if site_id not in present | leaving]

    # Time

    def tick(self, count: bool = True) -> None:
        """One step: messages arrive, machines come back, something may break, and some site counts."""
        self.now += 1
        self._come_back()
        while self._post and self._post[0][0] <= self.now:
            self._arrive(*heappop(self._post)[2:])
        self._notice_silence()
        self._break_something()
        if count:
            self._count()

    def _one_in(self, chance: int) -> bool:
        return chance > 0 and self._chance.randbelow(chance) == 0

    def _random_machine(self) -> Machine | None:
        machines = [
            machine for machine in self.machines.values() if machine.down_until <= self.now and not machine.leaving
        ]
        return machines[self._chance.randbelow(len(machines))] if machines else None

    def _count(self) -> None:
        machine = self._random_machine()
        if machine is not None:
            self._say(machine, machine.site.add(self._chance.geometric(5)))

    # What the coordinator's machine does

    @property
    def _coordinator_is_up(self) -> bool:
        return self._away_until <= self.now

    def _send(self, outbox: Outbox) -> None:
        if outbox and self._one_in(self.profile.coordinator_crash):  # saved, but not sent
            self._crash_coordinator()
            return
        for site_id, message in outbox:
            machine = self.machines.get(site_id.site)
            if machine is not None and machine.site.site_id == site_id:
                self._dispatch(machine, "down", message)

    def _crash_coordinator(self) -> None:
        self._away_until = self.now + 1 + self._chance.randbelow(self.profile.outage)
        for machine in self.machines.values():
            machine.line = 0

    def _notice_silence(self) -> None:
        if not self._coordinator_is_up:
            return
        for machine in list(self.machines.values()):
            if machine.line and self.profile.ordered:
                machine.heard = self.now
            if machine.silenced or self.now - machine.heard <= self.profile.patience:
                continue
            if self.owner.lives.get(machine.site.site_id.site) == machine.site.site_id:
                machine.silenced = True
                self._send(self.owner.silence(machine.site.site_id))

    def _arrive(self, line: int, site_id: SiteId, kind: str, data: bytes) -> None:
        machine = self.machines.get(site_id.site)
        if machine is not None and machine.site.site_id != site_id:
            machine = None  # that life is over
        if line and (machine is None or machine.line != line):
            return  # the connection broke while this was under way
        if kind in ("down", "bye"):
            if machine is not None and machine.down_until <= self.now:
                self._arrive_at_site(machine, kind, decode(data))
        elif self._coordinator_is_up:
            if machine is not None:
                machine.heard, machine.silenced = self.now, False
            self._arrive_at_coordinator(site_id, machine, kind, decode(data))

    def _arrive_at_coordinator(self, site_id: SiteId, machine: Machine | None, kind: str, message: Message) -> None:
        if kind == "hello" and isinstance(message, Snapshot):
            self._send(self.owner.hello(site_id, message))
        elif kind == "farewell" and isinstance(message, Snapshot):
            self._send(self.owner.farewell(site_id, message))
            if machine is not None:
                self._dispatch(machine, "bye", message)
        elif isinstance(message, UpMessage):
            self._send(self.owner.hear(site_id, message))

    # What a site's machine does

    def _arrive_at_site(self, machine: Machine, kind: str, message: Message) -> None:
        if kind == "bye":
            self.finished += machine.site.count
            del self.machines[machine.site.site_id.site]
        elif isinstance(message, DownMessage):
            self._say(machine, machine.site.receive(message))

    def _say(self, machine: Machine, messages: tuple[UpMessage, ...]) -> None:
        for message in messages:
            self._dispatch(machine, "up", message)

    def _dispatch(self, machine: Machine, kind: str, message: Message) -> None:
        if not machine.line:
            return  # nothing is lost that matters: the state of the site says it all again later
        profile, copies = self.profile, 1
        arrival = self.now + 1 + self._chance.randbelow(profile.delay)
        if profile.ordered:
            direction = kind in ("down", "bye")
            arrival = machine.last_arrival[direction] = max(machine.last_arrival[direction], arrival)
        else:
            copies = 0 if self._one_in(profile.lose) else 2 if self._one_in(profile.repeat) else 1
        for copy in range(copies):
            self._messages += 1
            tick = arrival + (copy and self._chance.randbelow(2 * profile.delay))
            line = machine.line if profile.ordered else 0
            heappush(self._post, (tick, self._messages, line, machine.site.site_id, kind, encode(message)))

    def _come_back(self) -> None:
        if self.now == self._away_until:
            self._send(self.owner.restart())
            for machine in self.machines.values():
                machine.heard, machine.silenced = self.now, False
        for machine in list(self.machines.values()):
            if machine.down_until > self.now:
                continue
            if machine.loses_state:
                self.lost += machine.site.count - self.owner.known(machine.site.site_id)
                machine = self._reborn(machine)
            reachable = self._coordinator_is_up and machine.cut_until <= self.now
            if reachable and (not machine.line or self._wants_to_repeat()):
                self.connect(machine)

    def _wants_to_repeat(self) -> bool:
        """Where no connection tells that a message was lost, a site says everything again now and then."""
        return not self.profile.ordered and self._one_in(max(1, self.profile.patience // 3))

    def _reborn(self, machine: Machine) -> Machine:
        name, life = machine.site.site_id
        return self._enter(SiteId(name, life + 1))

    def _enter(self, site_id: SiteId, trigger: Trigger | None = None) -> Machine:
        machine = Machine(Site(COUNTER, site_id, self._rng.spawn("site", *site_id), trigger=trigger))
        machine.heard = self.now
        self.machines[site_id.site] = machine
        return machine

    def connect(self, machine: Machine) -> None:
        """A connection opens: hello, and whatever the last one may have lost."""
        self._lines += 1
        machine.line, machine.last_arrival = self._lines, [0, 0]
        self._dispatch(machine, "hello", machine.site.snapshot())
        self._say(machine, machine.site.resend())
        if machine.leaving:
            self._dispatch(machine, "farewell", machine.site.snapshot())

    # What breaks

    def _break_something(self) -> None:
        profile = self.profile
        machine = self._random_machine()
        if self._coordinator_is_up and self._one_in(profile.coordinator_crash):
            self._crash_coordinator()
        if self._one_in(profile.partition):
            self._cut([other for other in self.machines.values() if self._chance.randbelow(2)])
        if self._one_in(profile.join):
            self._enter(SiteId(self._names))
            self._names += 1
        if machine is None:
            return
        if self._one_in(profile.disconnect):
            machines = list(self.machines.values())
            self._cut([machines[self._chance.randbelow(len(machines))]])
        staying = sum(not other.leaving for other in self.machines.values())
        if self._one_in(profile.leave) and staying > 1:
            machine.leaving = True
            self._dispatch(machine, "farewell", machine.site.snapshot())
        elif self._one_in(profile.crash):
            machine.down_until, machine.line = self.now + 1 + self._chance.randbelow(profile.outage), 0
            machine.loses_state = self._one_in(profile.loses_state)

    def _cut(self, machines: list[Machine]) -> None:
        until = self.now + 1 + self._chance.randbelow(self.profile.outage)
        for machine in machines:
            machine.line, machine.cut_until = 0, until

    # How it ends

    def heal(self) -> None:
        """No more faults: everything under way arrives, everybody comes back and says again what may have been lost."""
        self.profile = self.profile.healed
        self.settle()
        self._reconnect_all()
        self.settle()

    def restart(self) -> None:
        """A restart of the coordinator in good weather: it asks everybody."""
        self._away_until = self.now + 1
        self._reconnect_all()
        self.settle()

    def _reconnect_all(self) -> None:
        for machine in self.machines.values():
            machine.line = 0

    def step(self) -> None:
        """One event, and everything that follows from it."""
        machine = self._random_machine()
        if machine is not None:
            self._say(machine, machine.site.add())
        self.settle()

    def settle(self, most: int = 10_000) -> None:
        """Let time pass without events until everything has arrived and everybody is there."""
        start = self.now
        while not self._quiet():
            self.tick(count=False)
            if self.now - start > most:
                raise InvariantBroken(f"the network does not come to rest: {self!r}")

    def _quiet(self) -> bool:
        connected = all(machine.line and not machine.leaving for machine in self.machines.values())
        return connected and not self._post and self._coordinator_is_up
