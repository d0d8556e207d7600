"""Series beyond the label cap are counted in the overflow series: totals stay right, and there are few counters."""

import pytest

from countless.core.messages import Report, SetTrigger, Snapshot, StartRound
from countless.errors import InvalidParameter
from countless.server.http.answers.operator_view import operator_answer
from countless.server.settings import Config
from countless.server.site_server import SiteServer
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import VERSION, Hello, IncarnationRetired, Join, Leave, LeaveAck, Rejoin
from support.site_server import FakeConnection, site_server

OVERFLOW = 'hits{overflow="true"}'


def series(number: int) -> str:
    return f'hits{{route="{number}"}}'


def total(server: SiteServer) -> int:
    return sum(counter.coordinator.known_total for counter in server.counters.values())


async def test_series_beyond_the_cap_are_counted_in_the_overflow_series() -> None:
    async with site_server(label_cap=3) as harness:
        for site in range(4):
            session, connection = await harness.connect(f"web-{site}")
            for number in range(2 * site, 2 * site + 2):
                received = await harness.send(
                    session, connection, Join(series(number), 0, 10), Report(series(number), 0, 12, 2)
                )
                assert [item.counter for item in received if isinstance(item, SetTrigger)] == [series(number)]
        assert sorted(harness.server.counters) == sorted([OVERFLOW, *map(series, range(3))])
        assert harness.server.counter(OVERFLOW).published_answer.estimate == 5 * 12
        assert total(harness.server) == 8 * 12
        assert harness.server.overflowed == {"hits": 5}


async def test_overflow_series_keeps_its_counts_through_restart_timeout_and_retirement() -> None:
    store = MemoryStore()
    async with site_server(store, label_cap=0) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 1), Join(series(1), 0, 10), Join(series(2), 0, 20))
    async with site_server(store, label_cap=0) as harness:
        session, connection = await harness.connect("web")
        received = await harness.send(session, connection, Join(series(1), 0, 15), Join(series(2), 0, 21))
        assert await harness.send(session, connection, Leave(series(2), 0, 21)) == [LeaveAck(series(2))]
        start_round = next(item for item in received if isinstance(item, StartRound))
        assert start_round.counter == series(1)
        await harness.send(session, connection, Snapshot(series(1), start_round.round, 15))
        assert harness.server.counter(OVERFLOW).published_answer.estimate == 15 + 21
        harness.server.on_disconnect(session, connection)
        await harness.advance(11)
        assert operator_answer(harness.server.counter(OVERFLOW)).silent == ["web"]
        assert harness.server.drop_site("web") == 1
        await harness.server.flush()
        again = FakeConnection()
        assert await harness.server.on_hello(again, Hello(VERSION, "web", 1)) is None
        assert again.received == [IncarnationRetired((("hits", 1), (series(1), 15), (series(2), 21)))]


async def test_sites_of_a_deleted_overflow_series_rejoin_with_a_count_of_zero() -> None:
    async with site_server(label_cap=0) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(series(1), 0, 10))
        connection.received.clear()
        harness.server.delete(OVERFLOW)
        harness.server.on_frame(session, connection, [Report(series(1), 0, 11, 1)], 10)  # was under way
        await harness.server.flush()
        assert connection.received == [Rejoin(series(1))]
        await harness.send(session, connection, Join(series(1), 0, 2))
        assert total(harness.server) == 2


async def test_series_have_the_config_of_their_counter_and_the_cap_binds_operators() -> None:
    async with site_server() as harness:
        harness.server.create("hits", Config(alpha=0.25, label_cap=1))
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(series(1), 0, 10), Join(series(2), 0, 10), Join("misses{x}", 0, 1))
        assert harness.server.counter(series(1)).spec.alpha == harness.server.counter(OVERFLOW).spec.alpha == 0.25
        with pytest.raises(InvalidParameter, match="label_cap"):
            harness.server.create(series(3), Config())
        harness.server.delete(series(1))
        harness.server.create(series(3), Config())


async def test_overflow_series_has_at_most_max_sites_members() -> None:
    async with site_server(label_cap=0, max_sites=3) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, *(Join(series(number), 0, 1) for number in range(10)))
        assert total(harness.server) == 3
        assert harness.server.dropped["counter refused"] == 7
