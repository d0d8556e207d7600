"""The lines of a shard and those of its sites, with a broker that is a list: fanning out, gaps, and what is refused."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

from countless.client.transport.nats_transport import NatsLine
from countless.client.transport.websocket import ConnectionLost
from countless.core.messages import StartRound
from countless.core.triggers import GeometricGrowth, OffsetMultiple
from countless.server.cluster.connections import NatsLines
from countless.server.sessions.session_table import Line
from countless.wire import nats_subjects as nats
from countless.wire.frames import (
    DownItem,
    Hello,
    HelloAck,
    Join,
    LeaveAck,
    Sync,
    SyncAck,
    UpItem,
    decode_down,
    encode_frames,
)
from countless.wire.nats_protocol import Delivery
from support.service import Bench, bench

pytestmark = pytest.mark.slow

SHARD, SESSION = 3, "session"


class Broker:
    """Delivers at once, to exact subjects only; may lose what it is told to lose."""

    def __init__(self) -> None:
        self.lines: NatsLines
        self.published: list[str] = []  # by the coordinator
        self.lose: set[str] = set()  # subjects whose next message is dropped
        self.sites: list[Site] = []

    async def publish(self, subject: str, data: bytes) -> None:
        self.published.append(subject)
        if subject in self.lose:
            self.lose.remove(subject)
            return
        for site in self.sites:
            site.deliver(subject, data)


class Site:
    """One line of a site, in place of its socket too."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self._subjects: dict[int, str] = {}
        self._said: list[tuple[str, bytes]] = []
        self.name = name
        self.heard: list[DownItem] = []
        self.trouble: str | None = None
        broker.sites.append(self)
        self.line = NatsLine(self, SHARD, nats.token(name))  # type: ignore[arg-type]

    def listen(self, subject: str) -> int:
        number = len(self._subjects) + 1
        self._subjects[number] = subject
        return number

    def ignore(self, number: int) -> None:
        del self._subjects[number]

    def say(self, subject: str, payload: bytes, reply: str = "") -> None:
        self._said.append((subject, payload))

    @property
    def inbox(self) -> str:
        return self._subjects[1]

    def deliver(self, subject: str, data: bytes) -> None:
        for number in [number for number, each in self._subjects.items() if each == subject]:
            try:
                frame = self.line.receive(Delivery(number, subject, data))
                self.heard += decode_down(frame) if frame else []
            except ConnectionLost as error:
                self.trouble = str(error)

    async def send(self, *items: UpItem, arrives: bool = True) -> None:
        for frame in encode_frames(items):
            self.line.send(frame)
        await self.flush(arrives)

    async def flush(self, arrives: bool = True) -> None:
        said, self._said = self._said, []
        for subject, payload in said:
            if arrives:
                await self._broker.lines.arrived(subject, payload)


class Hall:
    """A host on a table, its lines, and as many sites as there is need for."""

    def __init__(self, table: Bench) -> None:
        self.table = table
        self.broker = Broker()
        self.leased = True
        self.lines = self.broker.lines = NatsLines(table.host, SHARD, SESSION, lambda: self.leased, self.broker.publish)

    async def settle(self) -> None:
        for _ in range(3):  # a hello is looked at in a task of its own
            await self.table.host.settled()
            await asyncio.sleep(0)
            await self.lines.flush()

    async def come(self, name: str, incarnation: int = 1) -> Site:
        site = Site(self.broker, name)
        await site.send(Hello(1, name, incarnation))
        while not site.heard and site.trouble is None:
            await self.settle()
        await site.send(Join("hits", 0, 5), Sync(1))
        await self.settle()
        return site

    async def start(self, starts: dict[Site, StartRound]) -> None:
        """What the core would have the host send."""
        for site, start in starts.items():
            life = self.table.host.lives.named(site.name)[0]
            line: Line | None = life.line
            assert line is not None
            line.send([start])
        self.broker.published.clear()
        await self.lines.flush()


def play(story: Any) -> None:
    async def run() -> None:
        async with bench() as table:
            scene: Coroutine[Any, Any, None] = story(Hall(table))
            await scene

    asyncio.run(run())


def test_a_round_that_is_the_same_for_all_is_one_message() -> None:
    async def story(hall: Hall) -> None:
        sites = [await hall.come(f"site.{number}") for number in range(100)]
        start = StartRound("hits", 1, GeometricGrowth(0.1))
        await hall.start(dict.fromkeys(sites[2:], start))  # two are known exactly, and not asked
        assert hall.broker.published == [nats.rounds(SHARD, SESSION, nats.EVERYBODY)]
        assert [start in site.heard for site in sites] == [False, False, *[True] * 98]
        for site in sites:  # and nobody misses anything
            await site.send(Sync(2))
        await hall.settle()
        assert all(SyncAck(2) in site.heard and site.trouble is None for site in sites)

    play(story)


def test_lattices_take_one_message_for_each_group_and_each_site_gets_its_own() -> None:
    async def story(hall: Hall) -> None:
        sites = [await hall.come(f"site {number}") for number in range(2 * nats.GROUP + 3)]
        starts = {site: StartRound("hits", 1, OffsetMultiple(1000, number)) for number, site in enumerate(sites)}
        await hall.start(starts)
        groups = [nats.rounds(SHARD, SESSION, group) for group in (0, 1)]
        assert hall.broker.published == [*groups, *(site.inbox for site in sites[-3:])]  # three: one by one
        assert all(site.heard[-1] == start for site, start in starts.items())

    play(story)


def test_where_many_are_left_out_groups_are_used() -> None:
    async def story(hall: Hall) -> None:
        sites = [await hall.come(f"site {number}") for number in range(80)]
        start = StartRound("hits", 1, GeometricGrowth(0.1))
        await hall.start(dict.fromkeys(sites[:6], start))
        assert hall.broker.published == [nats.rounds(SHARD, SESSION, 0)]
        assert [start in site.heard for site in sites] == [True] * 6 + [False] * 74

    play(story)


@pytest.mark.parametrize("lost", ["to all", "to one"])
def test_what_is_lost_on_the_way_down_is_noticed(lost: str) -> None:
    async def story(hall: Hall) -> None:
        sites = [await hall.come(f"site {number}") for number in range(5)]
        start = StartRound("hits", 1, GeometricGrowth(0.1))
        hall.broker.lose.add(nats.rounds(SHARD, SESSION, nats.EVERYBODY) if lost == "to all" else sites[0].inbox)
        await hall.start(dict.fromkeys(sites if lost == "to all" else sites[:1], start))
        assert not sites[0].trouble
        await sites[0].send(Sync(2))  # its next sign of life
        await hall.settle()
        assert str(sites[0].trouble) == "a message of the coordinator was lost on the way"
        assert (sites[1].trouble is None, start in sites[1].heard) == (True, False)

    play(story)


def test_what_is_lost_on_the_way_up_is_noticed() -> None:
    async def story(hall: Hall) -> None:
        site = await hall.come("site")
        await site.send(Join("misses", 0, 7), arrives=False)
        await site.send(Sync(2))
        await hall.settle()
        assert site.trouble == "the coordinator has hung up: a frame was lost on the way"
        assert hall.table.host.lives.named("site")[0].line is None
        again = await hall.come("site")
        assert again.trouble is None

    play(story)


def test_who_is_not_known_is_asked_to_say_hello() -> None:
    async def story(hall: Hall) -> None:
        site = Site(hall.broker, "site")
        await site.send(Hello(1, "site", 1), arrives=False)  # it went to the coordinator before
        await site.send(Sync(1))
        assert site.trouble == "the coordinator has hung up: say hello"

    play(story)


def test_a_subject_is_good_for_one_name_only() -> None:
    async def story(hall: Hall) -> None:
        site = Site(hall.broker, "site")
        await site.send(Hello(1, "another", 1))
        while site.trouble is None:
            await hall.settle()
        assert "speaks on the subject of another" in site.trouble
        assert hall.table.host.dropped["protocol"] == 1
        await hall.lines.arrived("countless.up.3.site.line", b"?")
        assert hall.table.host.dropped["protocol"] == 2

    play(story)


def test_without_a_lease_nothing_is_heard_and_nothing_is_said() -> None:
    async def story(hall: Hall) -> None:
        sites = [await hall.come(f"site {number}") for number in range(5)]
        hall.leased = False
        await hall.start(dict.fromkeys(sites, StartRound("hits", 1, GeometricGrowth(0.1))))
        await sites[0].send(Join("misses", 0, 7))
        await hall.settle()
        assert hall.broker.published == []
        assert list(hall.table.host.counters) == ["hits"]
        hall.leased = True
        await sites[0].send(Sync(2))
        await hall.settle()
        assert sites[0].trouble == "the coordinator has hung up: a frame was lost on the way"

    play(story)


def test_a_goodbye_frees_the_seat_and_everybody_is_told_at_the_end() -> None:
    async def story(hall: Hall) -> None:
        first, second = await hall.come("first"), await hall.come("second")
        assert [site.line.card.seat for site in (first, second) if site.line.card] == [0, 1]
        first.line.close()
        await first.flush()
        assert hall.table.host.connections == 1
        third = await hall.come("third")
        assert third.line.card is not None
        assert (third.line.card.seat, third.heard[0]) == (0, HelloAck(1, 30_000))
        await hall.lines.close("moved")
        assert second.trouble == third.trouble == "the coordinator has hung up: moved"
        assert hall.table.host.connections == 0

    play(story)


def test_too_many_messages_end_a_line() -> None:
    async def story(hall: Hall) -> None:
        site = await hall.come("site")
        with suppress(ConnectionLost):
            await site.send(*[Sync(number) for number in range(2, 25_000)])
        await hall.settle()
        assert "too many messages" in str(site.trouble)
        assert LeaveAck("hits") not in site.heard

    play(story)
