"""The commands of the scenario files: one command on a line, its full output below it.

new SCHEME sites=a,b,c [start=10] [step=5] [reports=4] [phases=4] [seed=1]    a coordinator and its first sites
add SITE N            events happen; the messages of the site wait on the wire
event SITE N          the same, and all messages are delivered, also those sent in reply
deliver [NUMBER ...]  deliver all messages, or those of these numbers, in this order
wire                  the messages that wait, numbered
repeat NUMBER         put a copy on the wire
lose NUMBER           take a message off the wire
join SITE             a new site; if a site of this name has left, its next incarnation
leave SITE            a site leaves and sends its final count
time_out SITE         the server has received nothing from the site for too long
reconnect SITE        a site connects again: it joins, and resends all that may have been lost
restart               the coordinator stops; another one starts from its saved state
answer, sites         print the answer; print the sites
"""

from collections.abc import Callable

from countless.core.coordinator import Coordinator, PersistentState
from countless.core.estimator import Scheme
from countless.core.messages import Message, Outbox, Report, SiteId, Snapshot, StartRound, UpMessage
from countless.core.site import Site
from countless.randomness import SeededRandom
from countless.schemes.deterministic import Deterministic
from countless.schemes.exact import Exact
from support.schemes import Plain, PlainDithered
from support.worlds import COUNTER

ALPHA = 0.1


def name_of(site_id: SiteId) -> str:
    return str(site_id.site) + "'" * site_id.incarnation


def show(site_id: SiteId, message: Message) -> str:
    name = name_of(site_id)
    if isinstance(message, Report):
        facts = f"{name} -> Report: {message.count}, {message.crossings} crossings"
    elif isinstance(message, Snapshot):
        facts = f"{name} -> Snapshot: {message.count}"
    elif isinstance(message, StartRound):
        facts = f"-> {name} StartRound: {message.trigger}"
    else:
        facts = f"-> {name} SetTrigger: {message.trigger} since {message.from_count}"
    return f"{facts} (round {message.round})"


class Scenario:
    """The world of one scenario file."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.wire: list[tuple[SiteId, Message]] = []
        self.sites: dict[str, Site] = {}
        self.incarnations: dict[str, int] = {}
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
        self.rng = SeededRandom(int(given.pop("seed", "1")))
        self.scheme = self._scheme(scheme, {key: int(value) for key, value in given.items()})
        self.coordinator = self._coordinator(fleet=[SiteId(name) for name in names])
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
            for site_id, message in [self.wire[int(number)] for number in numbers]:
                self.wire.remove((site_id, message))
                self._deliver(site_id, message)
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
        self.out.append(f"{name_of(site.site_id)} joins with {site.count}")
        self._down(self.coordinator.join(site.site_id, site.snapshot()))

    def do_leave(self, name: str) -> None:
        site = self.sites.pop(name)
        self.incarnations[name] = site.site_id.incarnation + 1
        self.gone += site.count
        self.out.append(f"{name_of(site.site_id)} leaves with {site.count}")
        self._down(self.coordinator.leave(site.site_id, site.snapshot()))

    def do_time_out(self, name: str) -> None:
        self._down(self.coordinator.mark_unreachable(self.sites[name].site_id))
        self.do_answer()

    def do_reconnect(self, name: str) -> None:
        site = self.sites[name]
        self.out.append(f"{name} is back with {site.count}")
        self._down(self.coordinator.join(site.site_id, site.snapshot()))
        self._up(site, site.resend())

    def do_restart(self) -> None:
        saved_state = self.coordinator.saved_state
        self.out.append(f"saved: {saved_state}")
        self.coordinator = self._coordinator(saved_state=saved_state)
        self._down(self.coordinator.recover())
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

    def _coordinator(
        self, fleet: list[SiteId] | None = None, saved_state: PersistentState | None = None
    ) -> Coordinator:
        rng = self.rng.spawn("coordinator")
        return Coordinator(
            COUNTER, self.scheme, rng, alpha=ALPHA, delta=0.1, fleet=fleet or (), saved_state=saved_state
        )

    def _site(self, name: str, configured: bool = False) -> Site:
        site_id = SiteId(name, self.incarnations.get(name, 0))
        trigger = self.coordinator.trigger_of(site_id) if configured else None
        return Site(COUNTER, site_id, self.rng.spawn("site", *site_id), trigger=trigger)

    def _deliver(self, site_id: SiteId, message: Message) -> None:
        self.out.append(show(site_id, message))
        if isinstance(message, UpMessage):
            self._down(self.coordinator.receive(site_id, message))
        else:
            site = self.sites[str(site_id.site)]
            self._up(site, site.receive(message))

    def _up(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.wire += [(site.site_id, message) for message in messages]

    def _down(self, outbox: Outbox) -> None:
        self.wire += outbox
