"""Every limit has a test that goes beyond it: a refusal with a reason, a metric, and the others go on."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any
from urllib.request import urlopen

import pytest

import countless
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.core.answer import State
from countless.core.messages import Report
from countless.errors import ProtocolError
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import (
    CounterRejected,
    Hello,
    Join,
    Leave,
    Sync,
    SyncAck,
    UpItem,
    encode_frames,
)
from support.raw_connection import close_reason, receive_until
from support.service import Server, until
from support.site_server import FakeConnection, site_server


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_a_site_that_leaves_and_joins_for_ever_does_not_use_up_the_counters() -> None:
    async def story() -> None:
        async with site_server(max_counters_per_site=5) as table:
            life, line = await table.connect("a")
            told: list[Any] = []
            for number in range(5):
                told += await table.send(life, line, Join(f"c{number}", 0, 1), Leave(f"c{number}", 0, 1))
            assert not [item for item in told if isinstance(item, CounterRejected)]
            told = await table.send(life, line, Join("c5", 0, 1))
            assert [item.counter for item in told if isinstance(item, CounterRejected)] == ["c5"]
            with pytest.raises(ProtocolError, match="max_counters_per_site"):
                await table.send(life, line, *(Join(f"d{number}", 0, 1) for number in range(9)))
            assert len(table.server.counters) == 5

    play(story())


def test_more_lives_than_max_sites_are_not_let_in() -> None:
    async def story() -> None:
        async with site_server(max_sites=2) as table:
            for name in ("a", "b"):
                life, line = await table.connect(name)
                await table.send(life, line, Join("hits", 0, 1))
            with pytest.raises(ProtocolError, match="2 sites already"):
                await table.server.on_hello(FakeConnection(), Hello(1, "c", 1))
            await table.connect("b")  # who is known may come back

    play(story())


def test_a_silent_site_is_given_up_after_forget_after_and_its_count_stays() -> None:
    async def story() -> None:
        async with site_server(silent_after=10.0, forget_after=60.0) as table:
            a, line_a = await table.connect("a")
            b, line_b = await table.connect("b")
            await table.send(a, line_a, Join("hits", 0, 30))
            await table.send(b, line_b, Join("hits", 0, 10))
            for _ in range(13):
                b.last_seen = table.time + 5
                await table.advance(5)
                assert table.server.counter("hits").published_answer.estimate == 40
            answer = table.server.counter("hits").published_answer
            assert (answer.state, answer.sites, len(table.server.sessions)) == (State.EXACT, 1, 1)

    play(story())


def test_a_life_older_than_all_that_is_remembered_must_begin_another() -> None:
    async def story() -> None:
        day, now = 86_400, 1_000 * 86_400.0
        store = SqliteStore(None, lambda: now)
        async with site_server(store, wall_clock=lambda: now, silent_after=10.0, remember_for=2.0 * day) as table:
            born = int(now - day) << 30
            life, line = await table.connect("a", born)
            await table.send(life, line, Join("hits", 0, 30))
            table.server.on_disconnect(life, line)
            assert table.server.drop_site("a") == 1
            await table.advance(61)
            assert await table.server.on_hello(FakeConnection(), Hello(1, "a", born)) is None  # still remembered
            now += 3 * day
            await table.advance(61)
            with pytest.raises(ProtocolError, match="start a new one"):
                await table.server.on_hello(FakeConnection(), Hello(1, "a", born))
            assert store.tombstones((await table.connect("a", int(now) << 30))[0].site_id) == ()

    play(story())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("limits")
    config = directory / "countless.toml"
    config.write_text("max_connections = 3\nmax_messages_per_second = 2000\nmax_counters = 5\n")
    with Server(directory, "--config", str(config)) as server:
        yield server


def dropped(server: Server, reason: str) -> int:
    page = urlopen(f"{server.url}/metrics").read().decode()  # noqa: S310
    lines = [line for line in page.splitlines() if line.startswith(f'countless_dropped_total{{reason="{reason}"}}')]
    return int(float(lines[0].rpartition(" ")[2])) if lines else 0


@pytest.mark.slow
def test_one_connection_too_many_is_told_so_and_the_others_go_on(server: Server) -> None:
    links = [WebSocketConnection(Endpoint.parse(server.url), None) for _ in range(3)]
    before = dropped(server, "too many connections")
    assert "max_connections" in close_reason(WebSocketConnection(Endpoint.parse(server.url), None))
    assert dropped(server, "too many connections") == before + 1
    for link in links:
        link.close()

    def there_is_room() -> bool:
        with countless.connect(server.url, site="next") as client:
            client.counter("hits").add(3)
            return client.flush(1)

    until(there_is_room)


@pytest.mark.slow
def test_a_site_that_sends_too_much_is_held_back_and_loses_nothing(server: Server) -> None:
    """2,000 a second and 8,000 to begin with: 14,000 reports take three seconds, and an honest site none of them."""
    link = WebSocketConnection(Endpoint.parse(server.url), None)
    link.send(next(encode_frames([Hello(1, "flood", 1), Join("flood", 0, 0)])))
    reports: list[UpItem] = [Report("flood", 0, number, number) for number in range(1, 14_001)]
    for start in range(0, 14_000, 1_000):
        link.send(next(encode_frames(reports[start : start + 1_000])))
    link.send(next(encode_frames([Sync(7)])))
    with countless.connect(server.url, site="honest") as client:
        client.counter("honest").add(5)
        assert client.flush(20)
        assert not receive_until(link, SyncAck(7), 0)  # while the flood is still being let in, drop by drop
    assert receive_until(link, SyncAck(7))
    assert server.inspect("flood")["known"] == 14_000
    link.close()


@pytest.mark.slow
def test_the_sixth_counter_is_refused_with_a_reason(server: Server) -> None:
    link = WebSocketConnection(Endpoint.parse(server.url), None)
    link.send(next(encode_frames([Hello(1, "greedy", 1), *(Join(f"g{n}", 0, 1) for n in range(9)), Sync(1)])))
    items = receive_until(link, SyncAck(1))
    refused = [item for item in items if isinstance(item, CounterRejected)]
    assert refused
    assert "max_counters" in refused[0].reason
    link.close()
