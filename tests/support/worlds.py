"""A small world: the production Site and Coordinator, and between them a wire that delivers at once and remembers."""

from collections import deque

from countless.core.coordinator import Coordinator, Memory, Outbox
from countless.core.estimator import Scheme
from countless.core.messages import Address, DownMessage, Message, Report, SiteName, Snapshot, StartRound, UpMessage
from countless.core.site import Site
from countless.randomness import SeededDice

COUNTER = "hits"

Line = tuple[str, Address, Message]


class World:
    """Sites 0 .. sites-1 and a coordinator. Every message is delivered at once, in order, and written down."""

    def __init__(self, scheme: Scheme, sites: int, *, alpha: float = 0.1, delta: float = 1e-9, seed: int = 1) -> None:
        self.dice = SeededDice(seed)
        self.transcript: list[Line] = []
        self.sites: dict[Address, Site] = {}
        self.scheme, self.alpha, self.delta = scheme, alpha, delta
        fleet = [Address(name) for name in range(sites)]
        self.coordinator = self._coordinator(fleet=fleet)
        for address in fleet:
            self._enter(address)
        self.gone = 0

    def _coordinator(self, fleet: list[Address] | None = None, memory: Memory | None = None) -> Coordinator:
        return Coordinator(
            COUNTER,
            self.scheme,
            self.dice.split("coordinator"),
            alpha=self.alpha,
            delta=self.delta,
            fleet=fleet or (),
            memory=memory,
        )

    def _enter(self, address: Address) -> None:
        pace = self.coordinator.pace_of(address)
        self.sites[address] = Site(COUNTER, address, self.dice.split("site", *address), pace=pace)

    @property
    def total(self) -> int:
        return self.gone + sum(site.count for site in self.sites.values())

    def add(self, name: SiteName, n: int = 1, *, life: int = 0) -> None:
        address = Address(name, life)
        self.up(address, self.sites[address].add(n))

    def join(self, name: SiteName, count: int = 0, *, life: int = 0) -> Site:
        address = Address(name, life)
        site = Site(COUNTER, address, self.dice.split("site", *address), count=count)
        self.sites[address] = site
        hello = site.exactly()
        self.transcript.append(("join", address, hello))
        self.settle(self.coordinator.join(address, hello))
        return site

    def leave(self, name: SiteName, *, life: int = 0) -> None:
        address = Address(name, life)
        farewell = self.sites.pop(address).exactly()
        self.gone += farewell.count
        self.transcript.append(("leave", address, farewell))
        self.settle(self.coordinator.leave(address, farewell))

    def restart(self) -> None:
        """The coordinator dies and another one goes on from what it saved."""
        self.coordinator = self._coordinator(memory=self.coordinator.memory)
        self.settle(self.coordinator.wake())

    def up(self, address: Address, messages: tuple[UpMessage, ...]) -> None:
        for message in messages:
            self.transcript.append(("up", address, message))
            self.settle(self.coordinator.receive(address, message))

    def settle(self, outbox: Outbox) -> None:
        queue = deque(outbox)
        while queue:
            address, message = queue.popleft()
            self.transcript.append(("down", address, message))
            for reply in self.sites[address].receive(message):
                self.transcript.append(("up", address, reply))
                queue += self.coordinator.receive(address, reply)


def down(outbox: Outbox, kind: type[DownMessage]) -> list[SiteName]:
    """The names of the sites that are sent a message of this kind."""
    return [address.site for address, message in outbox if isinstance(message, kind)]


def asked(outbox: Outbox) -> list[SiteName]:
    """The sites that a synchronisation asks."""
    return down(outbox, StartRound)


def report(count: int, crossings: int, round: int = 0) -> Report:
    return Report(COUNTER, round, count, crossings)


def snapshot(count: int, round: int = 0) -> Snapshot:
    return Snapshot(COUNTER, round, count)
