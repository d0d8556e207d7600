"""Sites that send invalid messages: they are refused, and no other site is affected."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.messages import Report, SetTrigger, SiteId, Snapshot, StartRound
from countless.errors import ProtocolError
from countless.server.sessions.awaited_answers import AwaitedAnswers
from countless.server.sessions.session_table import Session
from countless.server.site_server import SiteServer
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import VERSION, Hello, HelloAck, Join, Leave, Sync
from support.site_server import FakeConnection, SiteServerHarness, site_server


@pytest.mark.parametrize(
    "items",
    [
        [Report("hits", 0, 5, 1)],
        [Join("hits", 0, 1), Report("hits", 3, 5, 1)],
        [Join("hits", 0, 1), Hello(VERSION, "b", 1)],
        [Leave("hits", 0, 1)],
    ],
    ids=["report before join", "report of a later round", "second hello", "leave before join"],
)
async def test_invalid_items_are_protocol_errors(items: list[Any]) -> None:
    async with site_server() as harness:
        session, connection = await harness.connect("a")
        with pytest.raises(ProtocolError):
            await harness.send(session, connection, *items)


@pytest.mark.parametrize(
    "hello", [Hello(VERSION + 1, "a", 1), Hello(VERSION - 1, "a", 1), Hello(VERSION, "a", 1 << 63)]
)
async def test_invalid_hellos_are_protocol_errors(hello: Hello) -> None:
    async with site_server() as harness:
        with pytest.raises(ProtocolError):
            await harness.server.on_hello(FakeConnection(), hello)


HONEST = SiteId("honest", 77)

small = st.integers(0, 12)
names = st.sampled_from(["hits", "misses", "hits{a}", "hits{b}", "hits{c}"])
items = st.one_of(
    st.builds(Join, names, small, small),
    st.builds(Leave, names, small, small),
    st.builds(Report, names, small, small, small),
    st.builds(Snapshot, names, small, small),
    st.builds(Sync, small),
)
steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(["x", "y"]), st.lists(items, min_size=1, max_size=3)),
    st.tuples(st.just("reconnect"), st.sampled_from(["x", "y"]), st.integers(1, 2)),
    st.tuples(st.sampled_from(["time out", "restart", "delete", "drop site"]), names, st.just(0)),
)
Step = tuple[str, str, Any]


class Scenario:
    """Two dishonest sites, and one honest site that never times out."""

    def __init__(self, harness: SiteServerHarness) -> None:
        self._harness = harness
        self._dishonest: dict[str, tuple[Session, FakeConnection]] = {}

    async def play(self, kind: str, name: str, argument: Any) -> None:
        server = self._harness.server
        try:
            if kind == "reconnect":
                connection = FakeConnection()
                self._dishonest.pop(name, None)
                session = await server.on_hello(connection, Hello(VERSION, name, argument))
                if session is not None:
                    self._dishonest[name] = session, connection
            elif kind == "send" and name in self._dishonest:
                server.on_frame(*self._dishonest[name], argument, 10)
            elif kind == "time out":
                honest = server.sessions.get(HONEST)
                assert honest is not None
                honest.last_seen, honest.owed = self._harness.time + 26, AwaitedAnswers()
                await self._harness.advance(26)
            elif kind == "delete" and name in server.counters:
                server.delete(name)
            elif kind == "drop site":
                server.drop_site("x")
        except ProtocolError:
            server.on_disconnect(*self._dishonest[name])
        await server.flush()


def check_limits(server: SiteServer) -> None:
    assert len(server.counters) <= 4
    assert len(server.sessions) <= 5  # two sites with two incarnations each, and the honest one
    for session in server.sessions:
        assert len(session.members) + len(session.left) <= 3
        assert len(session.ignored) <= 3 + 5  # counters rejected, and counters that were deleted
    assert len(server.overflowed) <= 1


@pytest.mark.slow
@given(st.lists(steps, max_size=25))
async def test_no_items_of_two_dishonest_sites_affect_an_honest_one(script: list[Step]) -> None:
    store, remaining, published = MemoryStore(), iter(script), 0.0
    restarted = True
    while restarted:
        restarted = False
        limits = {"label_cap": 1, "max_counters": 4, "max_counters_per_site": 3}
        async with site_server(store, silent_after=10.0, **limits) as harness:
            honest, connection = await harness.connect("honest", 77)
            await harness.send(honest, connection, Join("kept", 0, 1000))
            scenario = Scenario(harness)
            for step in remaining:
                if step[0] == "restart":
                    restarted = True
                    break
                await scenario.play(*step)
                counter = harness.server.counter("kept")
                assert counter.coordinator.reported_by(HONEST) == 1000
                assert counter.published_answer.estimate >= published
                published = counter.published_answer.estimate
                check_limits(harness.server)
            assert all(isinstance(item, HelloAck | SetTrigger | StartRound) for item in connection.received)
