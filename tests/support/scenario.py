"""The little language of the scenario files: one command a line, its full output below it.

new SCHEME sites=a,b,c [start=10] [step=5] [reports=4] [phases=4] [seed=1]    a coordinator and its first sites
add SITE N            events happen; what the site says goes on the wire
event SITE N          the same, and everything is delivered until nobody says anything more
deliver [NUMBER ...]  deliver everything, or the messages of these numbers, in this order
wire                  what is under way, numbered
repeat NUMBER         put a copy on the wire
lose NUMBER           take a message off the wire
join SITE             a new site; with its last life over, a new life of it
leave SITE            a site goes for good
silence SITE          whoever owns the sockets has given up on it
reconnect SITE        a connection comes back: hello, and all that may have been lost again
restart               the coordinator dies; another goes on from its memory
answer, sites         what can be read
"""

from collections.abc import Callable

from countless.core.coordinator import Coordinator, Memory, Outbox
from countless.core.estimator import Scheme
from countless.core.messages import Address, Message, Report, Snapshot, StartRound, UpMessage
from countless.core.site import Site
from countless.randomness import SeededDice
from countless.schemes.deterministic import Deterministic
from countless.schemes.exact import Exact
from support.schemes import Plain, PlainDithered
from support.worlds import COUNTER

ALPHA = 0.1


def name_of(address: Address) -> str:
    return str(address.site) + "'" * address.incarnation


def show(address: Address, message: Message) -> str:
    name = name_of(address)
    if isinstance(message, Report):
        facts = f"{name} -> Report: {message.count}, {message.crossings} crossings"
    elif isinstance(message, Snapshot):
        facts = f"{name} -> Snapshot: {message.count}"
    elif isinstance(message, StartRound):
        facts = f"-> {name} StartRound: {message.pace}"
    else:
        facts = f"-> {name} Repace: {message.pace} since {message.since}"
    return f"{facts} (round {message.round})"


class Scenario:
    """The world of one scenario file."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.wire: list[tuple[Address, Message]] = []
        self.sites: dict[str, Site] = {}
        self.lives: dict[str, int] = {}
        self.gone = 0

    def run(self, lines: list[str]) -> str:
        """The output of these commands."""
        self.out = []
        for line in lines:
            command, *words = line.split()
            handler: Callable[..., None] = getattr(self, f"do_{command}")
            handler(*words)
        return "\n".join(self.out) or "(nothing)"

    # Commands

    def do_new(self, scheme: str, *words: str) -> None:
        given = dict(word.split("=") for word in words)
        names = given.pop("sites").split(",")
        self.dice = SeededDice(int(given.pop("seed", "1")))
        self.scheme = self._scheme(scheme, {key: int(value) for key, value in given.items()})
        self.coordinator = self._coordinator(fleet=[Address(name) for name in names])
        for name in names:
            self.sites[name] = self._site(name, configured=True)
        self.do_sites()
        self.do_answer()

    def do_add(self, name: str, n: str) -> None:
        site = self.sites[name]
        self._up(site, site.add(int(n)))

    def do_event(self, name: str, n: str) -> None:
        self.do_add(name, n)
        self.do_deliver()

    def do_deliver(self, *numbers: str) -> None:
        if numbers:
            for address, message in [self.wire[int(number)] for number in numbers]:
                self.wire.remove((address, message))
                self._deliver(address, message)
        while not numbers and self.wire:
            self._deliver(*self.wire.pop(0))
        self.do_answer()

    def do_wire(self) -> None:
        self.out += [f"{number}: {show(*line)}" for number, line in enumerate(self.wire)] or ["empty"]

    def do_repeat(self, number: str) -> None:
        self.wire.append(self.wire[int(number)])
        self.out.append(f"again: {show(*self.wire[-1])}")

    def do_lose(self, number: str) -> None:
        self.out.append(f"lost: {show(*self.wire.pop(int(number)))}")

    def do_join(self, name: str) -> None:
        site = self.sites[name] = self._site(name)
        self.out.append(f"{name_of(site.address)} joins with {site.count}")
        self._down(self.coordinator.join(site.address, site.exactly()))

    def do_leave(self, name: str) -> None:
        site = self.sites.pop(name)
        self.lives[name] = site.address.incarnation + 1
        self.gone += site.count
        self.out.append(f"{name_of(site.address)} leaves with {site.count}")
        self._down(self.coordinator.leave(site.address, site.exactly()))

    def do_silence(self, name: str) -> None:
        self._down(self.coordinator.silence(self.sites[name].address))
        self.do_answer()

    def do_reconnect(self, name: str) -> None:
        site = self.sites[name]
        self.out.append(f"{name} is back with {site.count}")
        self._down(self.coordinator.join(site.address, site.exactly()))
        self._up(site, site.resume())

    def do_restart(self) -> None:
        memory = self.coordinator.memory
        self.out.append(f"saved: {memory}")
        self.coordinator = self._coordinator(memory=memory)
        self._down(self.coordinator.wake())
        self.do_answer()

    def do_answer(self) -> None:
        truth = self.gone + sum(site.count for site in self.sites.values())
        self.out.append(f"answer {self.coordinator.answer}; truth {truth:,}")

    def do_sites(self) -> None:
        self.out += [f"{site!r} next at {site.next_at}" for site in self.sites.values()]

    # The world

    def _scheme(self, name: str, numbers: dict[str, int]) -> Scheme:
        if name in ("exact", "deterministic"):
            return Exact() if name == "exact" else Deterministic()
        return PlainDithered(**numbers) if name == "dithered" else Plain(name, **numbers)

    def _coordinator(self, fleet: list[Address] | None = None, memory: Memory | None = None) -> Coordinator:
        dice = self.dice.split("coordinator")
        return Coordinator(COUNTER, self.scheme, dice, alpha=ALPHA, delta=0.1, fleet=fleet or (), memory=memory)

    def _site(self, name: str, configured: bool = False) -> Site:
        address = Address(name, self.lives.get(name, 0))
        pace = self.coordinator.pace_of(address) if configured else None
        return Site(COUNTER, address, self.dice.split("site", *address), pace=pace)

    def _deliver(self, address: Address, message: Message) -> None:
        self.out.append(show(address, message))
        if isinstance(message, UpMessage):
            self._down(self.coordinator.receive(address, message))
        else:
            site = self.sites[str(address.site)]
            self._up(site, site.receive(message))

    def _up(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.wire += [(site.address, message) for message in messages]

    def _down(self, outbox: Outbox) -> None:
        self.wire += outbox
