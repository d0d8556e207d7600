"""Sessions that time out, come back and are retired."""

import pytest

from countless.core.answer import State
from countless.core.messages import Snapshot, StartRound
from countless.server.settings import Config
from countless.wire.frames import (
    VERSION,
    Hello,
    IncarnationRetired,
    Join,
    KnownCounts,
    Sync,
    decode_down,
    encode_frames,
)
from support.site_server import FakeConnection, site_server


async def test_unreachable_site_degrades_the_answer_until_it_is_back() -> None:
    async with site_server(silent_after=10.0) as harness:
        a, connection_a = await harness.connect("a")
        b, connection_b = await harness.connect("b")
        await harness.send(a, connection_a, Join("hits", 0, 30))
        await harness.send(b, connection_b, Join("hits", 0, 10))
        await harness.advance(49)
        await harness.send(b, connection_b, Sync(0))
        assert harness.server.counter("hits").published_answer.silent == ()
        await harness.advance(2)
        answer = harness.server.counter("hits").published_answer
        assert (answer.state, answer.silent, answer.estimate) == (State.DEGRADED, ("a",), 40)
        assert connection_a.close_reason == "timed out: no heartbeat"
        a, connection_a = await harness.connect("a")
        await harness.send(a, connection_a, Join("hits", 0, 33))
        assert harness.server.counter("hits").published_answer.silent == ()


async def test_site_that_owes_a_snapshot_or_is_disconnected_times_out_sooner_than_an_idle_one() -> None:
    async with site_server(silent_after=10.0) as harness:
        sessions = [await harness.connect(name) for name in "abc"]
        for session, connection in sessions:
            await harness.send(session, connection, Join("hits", 0, 10))
        await harness.advance(25)
        harness.server.configure("hits", Config(alpha=0.2))  # requests snapshots
        await harness.server.flush()
        request = sessions[0][1].received[-1]
        assert isinstance(request, StartRound)
        await harness.send(*sessions[0], Snapshot("hits", request.round, 10))
        await harness.send(*sessions[1], Sync(0))  # a heartbeat is no answer
        harness.server.on_disconnect(*sessions[2])
        await harness.advance(0)
        await harness.advance(9)
        assert harness.server.counter("hits").published_answer.silent == ()
        await harness.advance(2)
        assert harness.server.counter("hits").published_answer.silent == ("b", "c")


@pytest.mark.slow
async def test_process_with_thousands_of_counters_is_told_all_its_counts_in_frames_that_it_accepts() -> None:
    names = [f"requests of the customer with the number {number}" for number in range(6_000)]
    async with site_server(silent_after=10.0) as harness:
        first, connection = await harness.connect("a", 1)
        await harness.send(first, connection, *(Join(name, 0, 30) for name in names))
        harness.server.on_disconnect(first, connection)
        await harness.advance(11)
        await harness.connect("a", 2)
        connection = FakeConnection()
        assert await harness.server.on_hello(connection, Hello(VERSION, "a", 1)) is None
        items = [item for frame in encode_frames(connection.received) for item in decode_down(frame)]
        told = [
            pair for item in items if isinstance(item, (KnownCounts, IncarnationRetired)) for pair in item.known_counts
        ]
        assert sorted(told) == sorted((name, 30) for name in names)
        assert [isinstance(item, IncarnationRetired) for item in items] == [False] * (len(items) - 1) + [True]


async def test_session_is_retired_when_it_times_out_beside_a_connected_incarnation() -> None:
    async with site_server(silent_after=10.0) as harness:
        first, connection_1 = await harness.connect("a", 1)
        second, connection_2 = await harness.connect("a", 2)
        await harness.send(first, connection_1, Join("hits", 0, 30))
        await harness.send(second, connection_2, Join("hits", 0, 7))
        harness.server.on_disconnect(first, connection_1)
        await harness.advance(11)
        answer = harness.server.counter("hits").published_answer
        assert (answer.estimate, answer.sites, answer.silent) == (37, 1, ())


async def test_incarnations_of_one_site_count_side_by_side() -> None:
    async with site_server() as harness:
        for incarnation in (1, 2, 3):
            session, connection = await harness.connect("web", incarnation)
            await harness.send(session, connection, Join("hits", 0, 5))
        assert harness.server.counter("hits").published_answer.estimate == 15


async def test_disconnected_session_without_memberships_is_removed() -> None:
    async with site_server() as harness:
        session, connection = await harness.connect("a")
        harness.server.on_disconnect(session, connection)
        assert len(harness.server.sessions) == 0
