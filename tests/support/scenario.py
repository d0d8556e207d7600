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

from countless.core.estimator import Scheme
from countless.core.messages import Message, Report, SiteId, Snapshot, StartRound
from countless.schemes.deterministic import Deterministic
from countless.schemes.exact import Exact
from support.schemes import Plain, PlainDithered
from support.worlds import HeldWorld

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


def scheme_for(name: str, numbers: dict[str, int]) -> Scheme:
    if name in ("exact", "deterministic"):
        return Exact() if name == "exact" else Deterministic()
    return PlainDithered(**numbers) if name == "dithered" else Plain(name, **numbers)


class Scenario:
    """The state of one scenario file: a world that `new` creates, and the names of its sites."""

    world: HeldWorld

    def __init__(self) -> None:
        self.out: list[str] = []
        self.sites: dict[str, SiteId] = {}
        self.incarnations: dict[str, int] = {}  # the next one of each name

    def run(self, lines: list[str]) -> str:
        """The output of these commands."""
        self.out = []
        for line in lines:
            command, *words = line.split()
            handler: Callable[..., None] = getattr(self, f"do_{command}")
            handler(*words)
        return "\n".join(self.out) or "(nothing)"

    def do_new(self, scheme: str, *words: str) -> None:
        given = dict(word.split("=") for word in words)
        self.sites = {name: SiteId(name) for name in given.pop("sites").split(",")}
        seed = int(given.pop("seed", "1"))
        numbers = {key: int(value) for key, value in given.items()}
        self.world = HeldWorld(scheme_for(scheme, numbers), self.sites.values(), alpha=ALPHA, seed=seed)
        self.do_sites()
        self.do_answer()

    def do_add(self, name: str, n: str) -> None:
        self.world.add(self.sites[name], int(n))

    def do_event(self, name: str, n: str) -> None:
        self.do_add(name, n)
        self.do_deliver()

    def do_deliver(self, *numbers: str) -> None:
        for line in [self.world.wire[int(number)] for number in numbers]:
            self._deliver(self.world.wire.index(line))
        while not numbers and self.world.wire:
            self._deliver(0)
        self.do_answer()

    def _deliver(self, number: int) -> None:
        self.out.append(show(*self.world.wire[number]))
        self.world.deliver(number)

    def do_wire(self) -> None:
        self.out += [f"{number}: {show(*line)}" for number, line in enumerate(self.world.wire)] or ["empty"]

    def do_repeat(self, number: str) -> None:
        self.world.wire.append(self.world.wire[int(number)])
        self.out.append(f"again: {show(*self.world.wire[-1])}")

    def do_lose(self, number: str) -> None:
        self.out.append(f"lost: {show(*self.world.wire.pop(int(number)))}")

    def do_join(self, name: str) -> None:
        site_id = self.sites[name] = SiteId(name, self.incarnations.get(name, 0))
        self.out.append(f"{name_of(site_id)} joins with 0")
        self.world.join(site_id)

    def do_leave(self, name: str) -> None:
        site_id = self.sites.pop(name)
        self.incarnations[name] = site_id.incarnation + 1
        self.out.append(f"{name_of(site_id)} leaves with {self.world.sites[site_id].count}")
        self.world.leave(site_id)

    def do_time_out(self, name: str) -> None:
        self.world.time_out(self.sites[name])
        self.do_answer()

    def do_reconnect(self, name: str) -> None:
        self.out.append(f"{name} is back with {self.world.sites[self.sites[name]].count}")
        self.world.reconnect(self.sites[name])

    def do_restart(self) -> None:
        self.out.append(f"saved: {self.world.coordinator.saved_state}")
        self.world.restart()
        self.do_answer()

    def do_answer(self) -> None:
        self.out.append(f"answer {self.world.coordinator.answer}; truth {self.world.total:,}")

    def do_sites(self) -> None:
        self.out += [f"{site!r} next at {site.next_at}" for site in self.world.sites.values()]
