"""The faulty world: production sites and coordinator on a network that fails, all from one seed.

Time is counted in ticks. Messages travel as bytes and take time. With an ordered fault profile they travel on
connections, as over TCP: in order, until the connection breaks and loses what is in flight; a site that reconnects
joins again and resends its state. With an unordered profile each message may be late, lost or repeated. Sites crash
and restart, with their state or without; the coordinator crashes and continues from what it saved. `counted` is the
true total throughout.
"""

from heapq import heappop, heappush
from typing import NamedTuple

from countless.core.coordinator import Coordinator, PersistentState
from countless.core.estimator import Scheme
from countless.core.messages import DownMessage, Outbox, SiteId, SiteName, Snapshot, UpMessage
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.errors import InvariantBroken
from countless.lab.simulation.faults import FaultProfile
from countless.lab.simulation.owner import Owner
from countless.lab.simulation.world import COUNTER
from countless.randomness import SeededRandom
from countless.wire import frames

MAX_SETTLING_TICKS = 10_000
NO_CONNECTION = 0


class InFlight(NamedTuple):
    """A frame on its way, ordered by its arrival."""

    tick: int
    number: int
    connection: int
    site_id: SiteId
    to_site: bool
    frame: bytes


class Machine:
    def __init__(self, site: Site, now: int) -> None:
        self.site = site
        self.connection = NO_CONNECTION
        self.down_until = 0
        self.cut_until = 0  # no connection before this tick
        self.last_seen = now  # when the coordinator last received something from it
        self.marked_unreachable = False
        self.leaving = False
        self.loses_state = False  # will restart as a new incarnation
        self.last_arrival = {True: 0, False: 0}  # on this connection, to the site and to the coordinator


class FaultyWorld:
    def __init__(
        self, scheme: Scheme, sites: int, profile: FaultProfile, *, alpha: float, delta: float, seed: int
    ) -> None:
        self._rng = SeededRandom(seed)
        self._faults = self._rng.spawn("faults")
        self._scheme, self._alpha, self._delta = scheme, alpha, delta
        self.profile = profile
        self.now = 0
        self.departed = 0  # final counts of the sites that left
        self.lost = 0  # events that were lost with the state of a site, before any report of them arrived
        self._connections = self._messages = 0
        self._coordinator_down_until = 0
        self._in_flight: list[InFlight] = []
        self._fleet = [SiteId(name) for name in range(sites)]
        self._next_name = sites
        self.owner = Owner(self._build, self._fleet)
        self.machines: dict[SiteName, Machine] = {}
        for site_id in self._fleet:
            self._start_machine(site_id, self.owner.coordinator.trigger_of(site_id))

    def _build(self, saved_state: PersistentState | None) -> Coordinator:
        rng = self._rng.spawn("coordinator", saved_state.round if saved_state else 0)
        fleet = () if saved_state else self._fleet
        return Coordinator(
            COUNTER, self._scheme, rng, alpha=self._alpha, delta=self._delta, fleet=fleet, saved_state=saved_state
        )

    def __repr__(self) -> str:
        return f"<FaultyWorld at tick {self.now}: {self.owner.coordinator.answer}; total {self.counted:,}>"

    @property
    def counted(self) -> int:
        """All events whose count still exists: at running sites, in final snapshots, or in reports of lost sites."""
        machines = self.machines.values()
        running = sum(machine.site.count for machine in machines if not machine.loses_state)
        present = {machine.site.site_id for machine in machines if not machine.loses_state or machine.leaving}
        # Incarnations that have ended, which the coordinator does not know yet.
        ended = [site_id for site_id in self.owner.current.values() if site_id not in present]
        return self.departed + self.owner.retired_events + running + sum(map(self.owner.reported_by, ended))

    # Time

    def tick(self, count: bool = True) -> None:
        """One step: messages arrive, machines restart, faults happen and, with `count`, a site counts events."""
        self.now += 1
        self._restart_due()
        while self._in_flight and self._in_flight[0].tick <= self.now:
            self._arrive(heappop(self._in_flight))
        self._check_timeouts()
        self._cause_faults()
        machine = self._random_machine() if count else None
        if machine is not None:
            self._send_up(machine, machine.site.add(self._faults.geometric(5)))

    def _one_in(self, n: int) -> bool:
        return n > 0 and self._faults.randbelow(n) == 0

    def _random_machine(self) -> Machine | None:
        machines = [each for each in self.machines.values() if each.down_until <= self.now and not each.leaving]
        return machines[self._faults.randbelow(len(machines))] if machines else None

    # The coordinator

    @property
    def _coordinator_is_up(self) -> bool:
        return self._coordinator_down_until <= self.now

    def _send_down(self, outbox: Outbox) -> None:
        if outbox and self._one_in(self.profile.coordinator_crash):  # after saving, before sending
            self._crash_coordinator()
            return
        for site_id, message in outbox:
            machine = self.machines.get(site_id.site)
            if machine is not None and machine.site.site_id == site_id:
                self._dispatch(machine, message)

    def _crash_coordinator(self) -> None:
        self._coordinator_down_until = self.now + 1 + self._faults.randbelow(self.profile.outage)
        self._drop_connections()

    def _drop_connections(self) -> None:
        for machine in self.machines.values():
            machine.connection = NO_CONNECTION

    def _check_timeouts(self) -> None:
        if not self._coordinator_is_up:
            return
        for machine in list(self.machines.values()):
            if machine.connection and self.profile.ordered:
                machine.last_seen = self.now
            if machine.marked_unreachable or self.now - machine.last_seen <= self.profile.timeout:
                continue
            site_id = machine.site.site_id
            if self.owner.current.get(site_id.site) == site_id:
                machine.marked_unreachable = True
                self._send_down(self.owner.mark_unreachable(site_id))

    def _arrive(self, arrived: InFlight) -> None:
        machine = self.machines.get(arrived.site_id.site)
        if machine is not None and machine.site.site_id != arrived.site_id:
            machine = None  # that incarnation has ended
        if arrived.connection and (machine is None or machine.connection != arrived.connection):
            return  # the connection broke while this was in flight
        if arrived.to_site:
            if machine is not None and machine.down_until <= self.now:
                [down] = frames.decode_down(arrived.frame)
                self._arrive_at_site(machine, down)
        elif self._coordinator_is_up:
            if machine is not None:
                machine.last_seen, machine.marked_unreachable = self.now, False
            [up] = frames.decode_up(arrived.frame)
            self._arrive_at_coordinator(arrived.site_id, machine, up)

    def _arrive_at_coordinator(self, site_id: SiteId, machine: Machine | None, item: frames.UpItem) -> None:
        if isinstance(item, frames.Join):
            self._send_down(self.owner.join(site_id, Snapshot(*item)))
        elif isinstance(item, frames.Leave):
            self._send_down(self.owner.leave(site_id, Snapshot(*item)))
            if machine is not None:
                self._dispatch(machine, frames.LeaveAck(item.counter))
        elif isinstance(item, UpMessage):
            self._send_down(self.owner.receive(site_id, item))

    # The sites

    def _arrive_at_site(self, machine: Machine, item: frames.DownItem) -> None:
        if isinstance(item, frames.LeaveAck):
            self.departed += machine.site.count
            del self.machines[machine.site.site_id.site]
        elif isinstance(item, DownMessage):
            self._send_up(machine, machine.site.receive(item))

    def _send_up(self, machine: Machine, messages: tuple[UpMessage, ...]) -> None:
        for message in messages:
            self._dispatch(machine, message)

    def _dispatch(self, machine: Machine, item: frames.Item) -> None:
        if not machine.connection:
            return  # the site resends its state when it reconnects
        profile, copies, to_site = self.profile, 1, type(item) not in frames.UP_ITEMS
        arrival = self.now + 1 + self._faults.randbelow(profile.delay)
        if profile.ordered:
            arrival = machine.last_arrival[to_site] = max(machine.last_arrival[to_site], arrival)
        else:
            copies = 0 if self._one_in(profile.lose) else 2 if self._one_in(profile.repeat) else 1
        for copy in range(copies):
            self._messages += 1
            tick = arrival + (copy and self._faults.randbelow(2 * profile.delay))
            connection = machine.connection if profile.ordered else NO_CONNECTION
            [frame] = frames.encode_frames([item])
            heappush(self._in_flight, InFlight(tick, self._messages, connection, machine.site.site_id, to_site, frame))

    def _restart_due(self) -> None:
        if self.now == self._coordinator_down_until:
            self._send_down(self.owner.restart())
            for machine in self.machines.values():
                machine.last_seen, machine.marked_unreachable = self.now, False
        for machine in list(self.machines.values()):
            if machine.down_until > self.now:
                continue
            if machine.loses_state:
                name, incarnation = machine.site.site_id
                self.lost += machine.site.count - self.owner.reported_by(machine.site.site_id)
                machine = self._start_machine(SiteId(name, incarnation + 1))
            reachable = self._coordinator_is_up and machine.cut_until <= self.now
            if reachable and (not machine.connection or self._resend_due()):
                self._connect(machine)

    def _resend_due(self) -> bool:
        """Without connections a site cannot notice a lost message: it resends its state from time to time."""
        return not self.profile.ordered and self._one_in(max(1, self.profile.timeout // 3))

    def _start_machine(self, site_id: SiteId, trigger: Trigger | None = None) -> Machine:
        site = Site(COUNTER, site_id, self._rng.spawn("site", *site_id), trigger=trigger)
        machine = self.machines[site_id.site] = Machine(site, self.now)
        return machine

    def _connect(self, machine: Machine) -> None:
        """Open a connection, join, and send again what the last connection may have lost."""
        self._connections += 1
        machine.connection, machine.last_arrival = self._connections, {True: 0, False: 0}
        self._dispatch(machine, frames.Join(*machine.site.snapshot()))
        self._send_up(machine, machine.site.resend())
        if machine.leaving:
            self._dispatch(machine, frames.Leave(*machine.site.snapshot()))

    # Faults

    def _cause_faults(self) -> None:
        profile = self.profile
        machine = self._random_machine()
        if self._coordinator_is_up and self._one_in(profile.coordinator_crash):
            self._crash_coordinator()
        if self._one_in(profile.partition):
            self._cut([other for other in self.machines.values() if self._faults.randbelow(2)])
        if self._one_in(profile.join):
            self._start_machine(SiteId(self._next_name))
            self._next_name += 1
        if machine is None:
            return
        if self._one_in(profile.disconnect):
            machines = list(self.machines.values())
            self._cut([machines[self._faults.randbelow(len(machines))]])
        staying = sum(not other.leaving for other in self.machines.values())
        if self._one_in(profile.leave) and staying > 1:
            machine.leaving = True
            self._dispatch(machine, frames.Leave(*machine.site.snapshot()))
        elif self._one_in(profile.crash):
            machine.connection = NO_CONNECTION
            machine.down_until = self.now + 1 + self._faults.randbelow(profile.outage)
            machine.loses_state = self._one_in(profile.loses_state)

    def _cut(self, machines: list[Machine]) -> None:
        until = self.now + 1 + self._faults.randbelow(self.profile.outage)
        for machine in machines:
            machine.connection, machine.cut_until = NO_CONNECTION, until

    # After the faults

    def heal(self) -> None:
        self.profile = self.profile.healed
        self._run_until_idle()
        self._drop_connections()
        self._run_until_idle()

    def restart(self) -> None:
        self._coordinator_down_until = self.now + 1
        self._drop_connections()
        self._run_until_idle()

    def add_event(self) -> None:
        machine = self._random_machine()
        if machine is not None:
            self._send_up(machine, machine.site.add())
        self._run_until_idle()

    def _run_until_idle(self) -> None:
        """Let time pass without events until nothing is in flight and every site is connected."""
        end = self.now + MAX_SETTLING_TICKS
        while not self._idle():
            self.tick(count=False)
            if self.now > end:
                raise InvariantBroken(f"messages in flight after {MAX_SETTLING_TICKS:,} ticks: {self!r}")

    def _idle(self) -> bool:
        connected = all(machine.connection and not machine.leaving for machine in self.machines.values())
        return connected and not self._in_flight and self._coordinator_is_up
