"""The streams of a shard and those of its sites, with a broker in memory: sequence numbers, leases and refusals."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from secrets import token_hex
from typing import Any

import pytest

from countless.client.transport.base import ConnectionLost
from countless.client.transport.nats_transport import NatsStream
from countless.core.messages import StartRound
from countless.core.triggers import GeometricGrowth, OffsetMultiple
from countless.server.cluster.connections import NatsConnections
from countless.server.frame_reader import ITEMS_PER_SLICE, MAX_SHORT_BYTES
from countless.server.storage.rows import StateStore
from countless.wire.frames import (
    MAX_FRAME_BYTES,
    VERSION,
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
from countless.wire.nats_subjects import encode_uplink, subject_token
from support.site_server import SiteServerHarness, site_server
from support.stores import PausedStore
from support.waiting import eventually

pytestmark = pytest.mark.slow

SHARD, OWNERSHIP_ID = 3, "owner"


class MemoryBroker:
    """Delivers immediately, to exact subjects only. Drops the next message of the subjects in `drop_next`."""

    def __init__(self) -> None:
        self.connections: NatsConnections
        self.published: list[str] = []  # subjects, by the coordinator
        self.drop_next: set[str] = set()
        self.sites: list[FakeSite] = []

    async def publish(self, subject: str, data: bytes) -> None:
        self.published.append(subject)
        if subject in self.drop_next:
            self.drop_next.remove(subject)
            return
        for site in self.sites:
            site.deliver(subject, data)


class FakeSite:
    """One stream of a site. It is also the connection that its stream uses."""

    def __init__(self, broker: MemoryBroker, name: str) -> None:
        self._broker = broker
        self._subjects: dict[int, str] = {}
        self._outbox: list[tuple[str, bytes]] = []
        self.name = name
        self.received: list[DownItem] = []
        self.error: str | None = None
        broker.sites.append(self)
        self.stream = NatsStream(self, SHARD, subject_token(name), token_hex(8))

    def subscribe(self, subject: str) -> int:
        number = len(self._subjects) + 1
        self._subjects[number] = subject
        return number

    def unsubscribe(self, number: int) -> None:
        del self._subjects[number]

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        self._outbox.append((subject, payload))

    @property
    def downlink(self) -> str:
        return self._subjects[1]

    def deliver(self, subject: str, data: bytes) -> None:
        for number in [number for number, each in self._subjects.items() if each == subject]:
            try:
                for frame in self.stream.receive(Delivery(number, subject, data)):
                    self.received += decode_down(frame)
            except ConnectionLost as error:
                self.error = self.error or str(error)

    async def send(self, *items: UpItem, lost: bool = False) -> None:
        for frame in encode_frames(items):
            self.stream.send(frame)
        await self.flush(lost)

    async def flush(self, lost: bool = False) -> None:
        outbox, self._outbox = self._outbox, []
        for subject, payload in outbox:
            if not lost:
                await self._broker.connections.on_message(subject, payload)


class Shard:
    """A site server, its streams, and a broker in memory."""

    def __init__(self, table: SiteServerHarness) -> None:
        self.server = table.server
        self.broker = MemoryBroker()
        self.leased = True
        self.connections = NatsConnections(self.server, SHARD, OWNERSHIP_ID, lambda: self.leased, self.broker.publish)
        self.broker.connections = self.connections

    async def flush_all(self) -> None:
        for _ in range(3):  # a hello is handled in a task of its own
            await self.server.flush()
            await asyncio.sleep(0)
            await self.connections.flush()

    async def connect(self, name: str, incarnation: int = 1) -> FakeSite:
        site = FakeSite(self.broker, name)
        await site.send(Hello(VERSION, name, incarnation))
        await eventually(lambda: site.received or site.error, self.flush_all)
        await site.send(Join("hits", 0, 5), Sync(1))
        await self.flush_all()
        return site

    async def start_round(self, starts: dict[FakeSite, StartRound]) -> None:
        """As the core would have the host send them."""
        for site, start in starts.items():
            connection = self.server.sessions.of_site(site.name)[0].connection
            assert connection is not None
            connection.send([start])
        self.broker.published.clear()
        await self.connections.flush()


@asynccontextmanager
async def shard_with(store: StateStore | None = None, **settings: Any) -> AsyncIterator[Shard]:
    async with site_server(store, **settings) as table:
        yield Shard(table)


@pytest.fixture
async def shard() -> AsyncIterator[Shard]:
    async with shard_with() as shard:
        yield shard


async def test_round_start_is_one_message_to_each_site_with_its_own_offset(shard: Shard) -> None:
    sites = [await shard.connect(f"site.{number}") for number in range(30)]
    starts = {site: StartRound("hits", 1, OffsetMultiple(1000, number)) for number, site in enumerate(sites[2:])}
    await shard.start_round(starts)
    assert shard.broker.published == [site.downlink for site in sites[2:]]
    assert all(site.received[-1] == start for site, start in starts.items())
    for site in sites:
        await site.send(Sync(2))
    await shard.flush_all()
    assert all(SyncAck(2) in site.received and site.error is None for site in sites)


async def test_lost_downlink_frame_is_detected_at_the_next_frame(shard: Shard) -> None:
    first, second = await shard.connect("first"), await shard.connect("second")
    start = StartRound("hits", 1, GeometricGrowth(0.1))
    shard.broker.drop_next.add(first.downlink)
    await shard.start_round(dict.fromkeys((first, second), start))
    await first.send(Sync(2))
    await shard.flush_all()
    assert first.error == "frame lost between the coordinator and this site"
    assert (second.error, start in second.received) == (None, True)


async def test_lost_uplink_frame_closes_the_stream_and_the_site_can_reconnect(shard: Shard) -> None:
    site = await shard.connect("site")
    await site.send(Join("misses", 0, 7), lost=True)
    await site.send(Sync(2))
    await shard.flush_all()
    assert site.error == "stream closed by the coordinator: frame lost between the site and the coordinator"
    assert shard.server.sessions.of_site("site")[0].connection is None
    again = await shard.connect("site")
    assert again.error is None


async def test_frame_of_an_unknown_stream_is_answered_with_a_request_for_a_hello(shard: Shard) -> None:
    site = FakeSite(shard.broker, "site")
    await site.send(Hello(VERSION, "site", 1), lost=True)  # it went to the previous owner
    await site.send(Sync(1))
    assert site.error == "stream closed by the coordinator: unknown stream, send a hello"


async def test_site_cannot_use_the_subject_of_another_site(shard: Shard) -> None:
    site = FakeSite(shard.broker, "site")
    await site.send(Hello(VERSION, "another", 1))
    await eventually(lambda: site.error, shard.flush_all)
    assert "uses the subject of another site" in str(site.error)
    assert shard.server.dropped["protocol"] == 1
    await shard.connections.on_message("countless.up.3.site.stream", b"?")
    assert shard.server.dropped["protocol"] == 2


async def test_without_a_lease_nothing_is_received_and_nothing_is_sent(shard: Shard) -> None:
    sites = [await shard.connect(f"site {number}") for number in range(5)]
    shard.leased = False
    await shard.start_round(dict.fromkeys(sites, StartRound("hits", 1, GeometricGrowth(0.1))))
    await sites[0].send(Join("misses", 0, 7))
    await shard.flush_all()
    assert shard.broker.published == []
    assert list(shard.server.counters) == ["hits"]
    shard.leased = True
    await sites[0].send(Sync(2))
    await shard.flush_all()
    assert sites[0].error == "stream closed by the coordinator: frame lost between the site and the coordinator"


async def test_closed_stream_is_forgotten_and_closing_the_shard_closes_the_others(shard: Shard) -> None:
    first, second = await shard.connect("first"), await shard.connect("second")
    assert len(shard.server.connections) == 2
    first.stream.close()
    await first.flush()
    assert len(shard.server.connections) == 1
    assert shard.connections.debug_state().keys() == {"second"}
    third = await shard.connect("third")
    assert third.received[0] == HelloAck(VERSION, 30_000)
    await shard.connections.close("moved")
    assert second.error == third.error == "stream closed by the coordinator: moved"
    assert (len(shard.server.connections), shard.connections.debug_state()) == (0, {})


async def test_message_rate_above_the_limit_closes_the_stream(shard: Shard) -> None:
    site = await shard.connect("site")
    with suppress(ConnectionLost):
        await site.send(*[Sync(number) for number in range(2, 20_002)])  # BURST_S * 5,000, and the join before them
    await eventually(lambda: site.error, shard.flush_all)
    assert "too many messages" in str(site.error)
    assert LeaveAck("hits") not in site.received


LONG = [Join(f"c{number}", 0, 1) for number in range(1001)]


async def test_other_sites_are_served_between_the_slices_of_a_long_frame_and_its_own_frames_stay_in_order() -> None:
    async with shard_with(max_messages_per_second=10**6) as shard:
        long, other = await shard.connect("long"), await shard.connect("other")
        handled: list[list[UpItem]] = []
        on_frame = shard.server.on_frame

        def record(session: Any, connection: Any, items: list[UpItem], size: int) -> None:
            handled.append(items)
            on_frame(session, connection, items, size)

        shard.server.on_frame = record  # type: ignore[method-assign]
        await long.send(*LONG)
        await long.send(Sync(7))
        for _ in range(3):
            await asyncio.sleep(0)
        await other.send(Sync(8))
        await eventually(lambda: [Sync(7)] in handled)
        mine = [items for items in handled if items != [Sync(8)]]
        assert [item for items in mine for item in items] == [*LONG, Sync(7)]
        assert max(map(len, mine)) == ITEMS_PER_SLICE
        assert handled.index([Sync(8)]) < len(mine) - 2
        assert shard.server.partial_bytes.total == 0


async def test_stream_that_its_site_closes_is_removed_when_the_frames_before_are_handled(shard: Shard) -> None:
    site = await shard.connect("site")
    await site.send(*LONG)
    site.stream.close()
    await site.flush()
    assert shard.connections.debug_state().keys() == {"site"}
    await eventually(lambda: not shard.connections.debug_state())
    assert len(shard.server.counters) == 1 + len(LONG)
    assert shard.server.sessions.of_site("site")[0].connection is None


async def test_frames_of_a_site_that_wait_are_limited_and_those_of_its_neighbour_are_not() -> None:
    store = PausedStore()
    async with shard_with(store, max_partial_mb=1, max_share=0.5) as shard:
        other, site = await shard.connect("other"), FakeSite(shard.broker, "site")
        frames = 0
        store.pause()
        await site.send(Hello(VERSION, "site", 1))  # not answered before the store is read

        async def send_another() -> None:
            nonlocal frames
            frames += 1
            site.stream.send(b"x" * 1000)
            await site.flush()
            await shard.connections.flush()

        await eventually(lambda: site.error, send_another)
        store.resume()
        assert 500_000 // 1100 - 1 <= frames <= 500_000 // 1100 + 1
        assert "max_partial_mb" in str(site.error)
        assert shard.server.dropped["limit reached"] == 1
        await other.send(Sync(2))
        await shard.flush_all()
        assert SyncAck(2) in other.received
        assert shard.server.partial_bytes.total == shard.server.partial_bytes.used("site site") == 0
        assert not shard.server.sessions.of_site("site")


@pytest.mark.parametrize("first", [True, False])
async def test_frame_that_is_too_long_closes_the_stream(shard: Shard, first: bool) -> None:
    site = FakeSite(shard.broker, "site") if first else await shard.connect("site")
    site.stream.send(b"x" * (MAX_FRAME_BYTES + 1))
    await site.flush()
    await shard.connections.flush()
    assert "the limit is 262144" in str(site.error)
    assert (shard.connections.debug_state(), shard.server.partial_bytes.total) == ({}, 0)


async def test_one_site_has_its_share_of_the_connections() -> None:
    async with shard_with(max_connections=5, max_share=0.4) as shard:
        sites = [await shard.connect("hostile", incarnation) for incarnation in range(1, 4)]
        assert [site.error and site.error.partition(": ")[2] for site in sites] == [
            *(None, None, "no more connections of this site (max_share of max_connections)")
        ]
        others = [await shard.connect(f"site {number}") for number in range(4)]
        assert [site.error and site.error.partition(": ")[2] for site in others] == [
            *(None, None, None, "no more connections (max_connections)")
        ]
        sites[0].stream.close()
        await sites[0].flush()
        assert (await shard.connect("hostile", 4)).error is None


async def test_stream_that_is_closed_while_its_hello_waits_leaves_no_session(shard: Shard) -> None:
    site = FakeSite(shard.broker, "site")
    await site.send(Hello(VERSION, "site", 1))
    await shard.connections.on_message(
        f"countless.up.{SHARD}.site.{site.downlink.rpartition('.')[2]}", encode_uplink(9, b"")
    )
    await shard.flush_all()
    assert "frame lost" in str(site.error)
    await shard.flush_all()
    assert not shard.server.sessions.of_site("site")


async def test_short_frames_in_one_piece_do_not_keep_the_loop_from_other_work(shard: Shard) -> None:
    site = await shard.connect("site")
    (frame,) = encode_frames([Sync(number % 100) for number in range(MAX_SHORT_BYTES // 3 - 2)])
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    for _ in range(12):
        site.stream.send(frame)
    await site.flush()
    counting.cancel()
    assert turns >= 2
    assert len(frame) <= MAX_SHORT_BYTES
