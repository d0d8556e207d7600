"""Every limit is exceeded by a test: a reason, a metric, and no effect on other sites."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import countless
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.core.answer import State
from countless.core.budget.messages import Quota
from countless.core.budget.rule import BudgetRule
from countless.core.messages import Report, SiteId
from countless.errors import CounterRefused, ProtocolError
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tuning import TUNING
from countless.wire.frames import (
    VERSION,
    CounterRejected,
    DownItem,
    Hello,
    IncarnationExpired,
    IncarnationRetired,
    Join,
    Leave,
    Sync,
    SyncAck,
    UpItem,
    encode_frames,
)
from countless.wire.incarnations import first_of
from support.raw_connection import close_reason, receive_until
from support.service import TIMEOUT_S, Server, until
from support.site_server import FakeConnection, site_server
from support.spender import first_ask


async def test_counters_that_a_site_left_count_towards_max_counters_per_site() -> None:
    async with site_server(max_counters_per_site=5) as harness:
        session, connection = await harness.connect("a")
        items: list[Any] = []
        for number in range(5):
            items += await harness.send(session, connection, Join(f"c{number}", 0, 1), Leave(f"c{number}", 0, 1))
        assert not [item for item in items if isinstance(item, CounterRejected)]
        items = await harness.send(session, connection, Join("c5", 0, 1))
        assert [item.counter for item in items if isinstance(item, CounterRejected)] == ["c5"]
        with pytest.raises(ProtocolError, match="max_counters_per_site"):
            await harness.send(session, connection, *(Join(f"d{number}", 0, 1) for number in range(9)))
        assert len(harness.server.counters) == 5


async def test_incarnation_beyond_max_sites_is_rejected() -> None:
    async with site_server(max_sites=2) as harness:
        for name in ("a", "b"):
            session, connection = await harness.connect(name)
            await harness.send(session, connection, Join("hits", 0, 1))
        with pytest.raises(ProtocolError, match="2 sites already"):
            await harness.server.on_hello(FakeConnection(), Hello(VERSION, "c", 1))
        await harness.connect("b")  # a known incarnation may reconnect


async def test_silent_site_is_dropped_after_forget_after_and_its_count_stays() -> None:
    async with site_server(silent_after=10.0, forget_after=60.0) as harness:
        a, connection_a = await harness.connect("a")
        b, connection_b = await harness.connect("b")
        await harness.send(a, connection_a, Join("hits", 0, 30))
        await harness.send(b, connection_b, Join("hits", 0, 10))
        for _ in range(13):
            b.last_seen = harness.time + 5
            await harness.advance(5)
            assert harness.server.counter("hits").published_answer.estimate == 40
        answer = harness.server.counter("hits").published_answer
        assert (answer.state, answer.sites, len(harness.server.sessions)) == (State.EXACT, 1, 1)


async def test_bulk_forget_retires_those_that_were_silent_for_long_enough_and_keeps_their_counts() -> None:
    async with site_server(silent_after=1_000.0) as harness:
        sites = [await harness.connect(f"pod-{number}") for number in range(5)]
        for number, (session, connection) in enumerate(sites):
            await harness.send(session, connection, Join("hits", 0, 10**number))
        for session, connection in sites[:3]:
            harness.server.on_disconnect(session, connection)
            await harness.advance(100)
        assert harness.server.drop_silent(400) == 0
        assert harness.server.drop_silent(200) == 2  # silent for 300 s and for 200 s
        await harness.server.flush()
        assert [str(session.site_id.site) for session in harness.server.sessions] == ["pod-2", "pod-3", "pod-4"]
        assert harness.server.drop_silent(1) == 1  # not those that are connected
        await harness.server.flush()
        answer = harness.server.counter("hits").published_answer
        assert answer.lower <= 11_111 <= answer.upper
        assert (answer.state, answer.sites) == (State.HOLDING, 2)


@pytest.mark.slow
async def test_sites_with_names_of_their_own_do_not_pile_up() -> None:
    """Some say goodbye, others are killed: of neither kind anything stays but the count."""
    async with site_server(silent_after=1.0, forget_after=5.0) as harness:
        killed: list[UpItem] = [Join("hits", 0, 1)]
        polite: list[UpItem] = [*killed, Leave("hits", 0, 2)]
        for number in range(200):
            for name, items in (("polite", polite), ("killed", killed)):
                session, connection = await harness.connect(f"{name}-{number}")
                harness.server.on_frame(session, connection, list(items), 10)
                harness.server.on_disconnect(session, connection)
            if number % 50 == 49:
                assert len(harness.server.sessions) == 50  # the killed ones of the last ten seconds
                await harness.advance(10)
        answer = harness.server.counter("hits").published_answer
        assert (len(harness.server.sessions), answer.estimate, answer.sites) == (0, 600, 0)


async def test_incarnation_whose_tombstone_may_be_dropped_is_told_a_least_number() -> None:
    day, now = 86_400, 1_000 * 86_400.0
    store = SqliteStore(None, lambda: now)
    async with site_server(store, wall_clock=lambda: now, silent_after=10.0, remember_for=2.0 * day) as harness:
        incarnation = first_of(int(now - day))

        async def answer() -> list[DownItem]:
            connection = FakeConnection()
            assert await harness.server.on_hello(connection, Hello(VERSION, "a", incarnation)) is None
            return connection.received

        session, connection = await harness.connect("a", incarnation)
        await harness.send(session, connection, Join("hits", 0, 30))
        harness.server.on_disconnect(session, connection)
        assert harness.server.drop_site("a") == 1
        await harness.server.flush()
        now += 800 * day  # for some minutes only
        for _ in range(TUNING.clock_readings - 2):
            await harness.advance(61)
        now -= 800 * day
        for _ in range(TUNING.clock_readings):
            await harness.advance(61)
        assert await answer() == [IncarnationRetired((("hits", 30),))]
        now += 3 * day
        for _ in range(TUNING.clock_readings):
            await harness.advance(61)
        least = first_of(int(now - 4 * day) + 1)
        assert await answer() == [IncarnationExpired(least)]
        now -= 100 * day  # the clocks of new processes are wrong, too
        assert (await harness.connect("a", least))[0].site_id == SiteId("a", least)


async def test_incarnation_that_spent_of_a_budget_expires_too() -> None:
    """It is not told that it was retired without counts: it would send all of them again."""
    now = 1_000 * 86_400.0
    store = SqliteStore(None, lambda: now)
    async with site_server(store, wall_clock=lambda: now, silent_after=10.0, remember_for=86_400.0) as harness:
        harness.server.budgets.create("tokens", BudgetRule(10, slack=0))
        session, connection = await harness.connect("a", first_of(5))
        ask = first_ask("tokens", 5)
        assert Quota in {type(item) for item in await harness.send(session, connection, Join("hits", 0, 30), ask)}
        harness.server.on_disconnect(session, connection)
        assert harness.server.drop_site("a") == 1
        await harness.server.flush()
        now += 3 * 86_400
        for _ in range(TUNING.clock_readings):
            await harness.advance(61)
        assert harness.server.budgets.losses.retired(session.site_id)
        connection = FakeConnection()
        assert await harness.server.on_hello(connection, Hello(VERSION, "a", first_of(5))) is None
        assert connection.received == [IncarnationExpired(first_of(6))]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("limits")
    config = directory / "countless.toml"
    config.write_text("max_connections = 3\nmax_messages_per_second = 100\nmax_counters = 5\n")
    with Server(directory, "--config", str(config)) as server:
        yield server


def dropped(server: Server, reason: str) -> int:
    page = urlopen(f"{server.url}/metrics").read().decode()  # noqa: S310
    lines = [line for line in page.splitlines() if line.startswith(f'countless_dropped_total{{reason="{reason}"}}')]
    return int(float(lines[0].rpartition(" ")[2])) if lines else 0


@pytest.mark.slow
def test_connection_beyond_max_connections_is_rejected_and_others_continue(server: Server) -> None:
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


def flood(server: Server, name: str, number: int) -> WebSocketConnection:
    """A site that sends so many reports at once."""
    link = WebSocketConnection(Endpoint.parse(server.url), None)
    link.send(next(encode_frames([Hello(VERSION, name, 1), Join(name, 0, 0)])))
    reports: list[UpItem] = [Report(name, 0, count, count) for count in range(1, number + 1)]
    for start in range(0, number, 100):
        link.send(next(encode_frames(reports[start : start + 100])))
    link.send(next(encode_frames([Sync(7)])))
    return link


@pytest.mark.slow
def test_site_beyond_its_message_rate_is_throttled_and_loses_nothing(server: Server) -> None:
    """100 a second after a burst of 400: 700 reports take three seconds."""
    link = flood(server, "flood", 700)
    assert receive_until(link, SyncAck(7))
    assert server.inspect("flood")["known"] == 700
    link.close()


@pytest.mark.slow
def test_site_that_is_throttled_delays_no_other(tmp_path: Path) -> None:
    """It would take longer than anything waits here."""
    config = tmp_path / "config.toml"
    config.write_text("max_messages_per_second = 100\n")
    with Server(tmp_path, "--config", str(config)) as server:
        link = flood(server, "flood", 20_000)
        with countless.connect(server.url, site="honest") as client:
            client.counter("honest").add(5)
            assert client.flush(TIMEOUT_S)
            assert not receive_until(link, SyncAck(7), 0)
        link.close()


@pytest.mark.slow
def test_counter_beyond_max_counters_is_rejected_with_a_reason(server: Server) -> None:
    link = WebSocketConnection(Endpoint.parse(server.url), None)
    link.send(next(encode_frames([Hello(VERSION, "greedy", 1), *(Join(f"g{n}", 0, 1) for n in range(9)), Sync(1)])))
    items = receive_until(link, SyncAck(1))
    refused = [item for item in items if isinstance(item, CounterRejected)]
    assert refused
    assert "max_counters" in refused[0].reason
    link.close()
    client = countless.connect(server.url, site="refused")
    client.counter("one too many").add(1)
    for deliver in (client.flush, client.close):
        with pytest.raises(CounterRefused, match=r"counter 'one too many' is refused .*max_counters"):
            deliver(TIMEOUT_S)
