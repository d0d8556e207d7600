"""Sites that lie to the host: they are told so, and nobody else is touched."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.messages import Report, SetTrigger, SiteId, Snapshot, StartRound
from countless.errors import ProtocolError
from countless.server.sessions.site_server import SiteServer
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import Hello, HelloAck, Join, Leave, Sync
from support.service import FakeConnection, bench


@pytest.mark.parametrize(
    "lies",
    [
        [Report("hits", 0, 5, 1)],  # not joined
        [Join("hits", 0, 1), Report("hits", 3, 5, 1)],  # a round that does not exist
        [Join("hits", 0, 1), Hello(1, "b", 1)],  # another name in the middle
        [Leave("hits", 0, 1)],
    ],
)
def test_lies_are_protocol_errors(lies: list[Any]) -> None:
    async def story() -> None:
        async with bench() as table:
            life, line = await table.connect("a")
            with pytest.raises(ProtocolError):
                await table.say(life, line, *lies)

    asyncio.run(story())


@pytest.mark.parametrize("hello", [Hello(2, "a", 1), Hello(0, "a", 1), Hello(1, "a", 1 << 63)])
def test_strange_hellos_are_protocol_errors(hello: Hello) -> None:
    async def story() -> None:
        async with bench() as table:
            with pytest.raises(ProtocolError):
                await table.host.on_hello(FakeConnection(), hello)

    asyncio.run(story())


Lines = dict[str, tuple[Any, FakeConnection]]
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
    st.tuples(st.just("say"), st.sampled_from(["x", "y"]), st.lists(items, min_size=1, max_size=3)),
    st.tuples(st.just("reconnect"), st.sampled_from(["x", "y"]), st.integers(1, 2)),
    st.tuples(st.sampled_from(["wait", "restart", "delete", "forget"]), names, st.just(0)),
)


def assert_small(host: SiteServer) -> None:
    """Nothing that liars can say makes anything grow beyond its limit."""
    assert len(host.counters) <= 4
    assert len(host.sessions) <= 5  # two names, two incarnations each, and the honest one
    for life in host.sessions:
        assert len(life.memberships) + len(life.left) <= 3
        assert len(life.ignored) <= 3 + 5  # of its own doing, and of counters deleted under it
    assert len(host.overflowed) <= 1


async def step(table: Any, lines: Lines, kind: str, name: str, argument: Any) -> None:
    try:
        if kind == "reconnect":
            fresh = FakeConnection()
            lines[name] = (await table.host.on_hello(fresh, Hello(1, name, argument)), fresh)
        elif kind == "say" and name in lines and lines[name][0] is not None:
            table.host.on_frame(*lines[name], argument, 10)
        elif kind == "wait":
            honest = table.host.sessions.get(HONEST)
            honest.last_seen, honest.awaiting_since = table.time + 26, None
            await table.wait(26)
        elif kind == "delete" and name in table.host.counters:
            table.host.delete(name)
        elif kind == "forget":
            table.host.drop_site("x")
    except ProtocolError:
        table.host.on_disconnect(*lines[name])


@pytest.mark.slow
@given(st.lists(steps, max_size=25))
def test_whatever_two_liars_say_the_honest_site_is_not_touched(story: list[tuple[str, str, Any]]) -> None:
    async def run() -> None:
        store, left = SqliteStore(None), list(story)
        shown: float = 0
        while True:
            lines: Lines = {}
            async with bench(store, silent_after=10.0, label_cap=1, max_counters=4, max_counters_per_site=3) as table:
                honest, line = await table.connect("honest", 77)
                await table.say(honest, line, Join("kept", 0, 1000))
                while left and left[0][0] != "restart":
                    await step(table, lines, *left.pop(0))
                    await table.host.flush()
                    counter = table.host.counter("kept")
                    assert counter.coordinator.reported_by(HONEST) == 1000
                    assert counter.published_answer.estimate >= shown
                    shown = counter.published_answer.estimate
                    assert_small(table.host)
                assert all(isinstance(item, HelloAck | SetTrigger | StartRound) for item in line.got)
            if not left:
                return
            left.pop(0)

    asyncio.run(run())
