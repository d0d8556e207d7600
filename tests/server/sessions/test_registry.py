"""The roster on a table: restarts, who is silent, who comes back, and what operators do to counters."""

import asyncio

import pytest

from countless.core.answer import State
from countless.core.messages import Report, SiteId, Snapshot, StartRound
from countless.errors import InvalidParameter
from countless.server.storage.base import Config
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import Hello, IncarnationRetired, Join, Rejoin, Sync
from support.service import FakeConnection, bench


def test_a_restart_asks_everybody_and_the_total_does_not_fall() -> None:
    async def story() -> None:
        store = SqliteStore(None)
        async with bench(store) as table:
            a, line_a = await table.connect("a")
            b, line_b = await table.connect("b")
            await table.say(a, line_a, Join("hits", 0, 30))
            await table.say(b, line_b, Join("hits", 0, 10))
            assert table.host.counter("hits").published_answer.estimate == 40
        async with bench(store) as table:
            await table.host.flush()
            counter = table.host.counter("hits")
            assert (counter.recovering, counter.published_answer.state, counter.published_answer.estimate) == (
                True,
                State.LEARNING,
                40,
            )
            for site, count in (("a", 35), ("b", 11)):
                life, line = await table.connect(site)
                told = await table.say(life, line, Join("hits", 0, count))
                question = next(item for item in told if isinstance(item, StartRound))
                assert counter.published_answer.estimate >= 40
                await table.say(life, line, Snapshot("hits", question.round, count))
            assert (counter.recovering, counter.published_answer.estimate, counter.coordinator.known_total) == (
                False,
                46,
                46,
            )

    asyncio.run(story())


def test_a_silent_site_degrades_the_answer_and_is_named_until_it_is_back() -> None:
    async def story() -> None:
        async with bench(silent_after=10.0) as table:
            a, line_a = await table.connect("a")
            b, line_b = await table.connect("b")
            await table.say(a, line_a, Join("hits", 0, 30))
            await table.say(b, line_b, Join("hits", 0, 10))
            await table.wait(49)
            await table.say(b, line_b, Sync(0))
            assert table.host.counter("hits").published_answer.silent == ()
            await table.wait(2)
            answer = table.host.counter("hits").published_answer
            assert (answer.state, answer.silent, answer.estimate) == (State.DEGRADED, ("a",), 40)
            assert line_a.closed == "timed out: no heartbeat and no answer"
            a, line_a = await table.connect("a")
            await table.say(a, line_a, Join("hits", 0, 33))
            assert table.host.counter("hits").published_answer.silent == ()

    asyncio.run(story())


def test_who_owes_an_answer_or_has_hung_up_is_silent_sooner() -> None:
    async def story() -> None:
        async with bench(silent_after=10.0) as table:
            lives = [await table.connect(name) for name in "abc"]
            for life, line in lives:
                await table.say(life, line, Join("hits", 0, 10))
            await table.wait(25)
            table.host.configure("hits", Config(alpha=0.2))  # asks everybody
            await table.say(*lives[0], Sync(0))
            table.host.on_disconnect(*lives[2])
            await table.wait(9)
            assert table.host.counter("hits").published_answer.silent == ()
            await table.wait(2)
            assert table.host.counter("hits").published_answer.silent == ("b", "c")

    asyncio.run(story())


def test_a_life_given_up_by_mistake_comes_back_with_the_rest() -> None:
    async def story() -> None:
        async with bench(silent_after=10.0) as table:
            a, line = await table.connect("a", 1)
            await table.say(a, line, Join("hits", 0, 30))
            table.host.on_disconnect(a, line)
            await table.wait(11)
            b, line_b = await table.connect("a", 2)  # the same name, while the first is silent
            await table.say(b, line_b, Join("hits", 0, 7))
            counter = table.host.counter("hits")
            assert (
                counter.published_answer.estimate,
                counter.published_answer.sites,
                counter.published_answer.silent,
            ) == (37, 1, ())
            line = FakeConnection()
            assert await table.host.on_hello(line, Hello(1, "a", 1)) is None
            assert line.got == [IncarnationRetired((("hits", 30),))]

    asyncio.run(story())


def test_lives_of_one_name_may_be_there_together() -> None:
    async def story() -> None:
        async with bench() as table:
            for worker in (1, 2, 3):
                life, line = await table.connect("web", worker)
                await table.say(life, line, Join("hits", 0, 5))
            assert table.host.counter("hits").published_answer.estimate == 15

    asyncio.run(story())


def test_deleting_a_counter_sends_its_sites_back_to_nothing() -> None:
    async def story() -> None:
        async with bench() as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 20))
            table.host.delete("hits")
            table.host.on_frame(life, line, [Report("hits", 0, 60, 9)], 10)  # was under way
            await table.host.flush()
            assert Rejoin("hits", keep_count=False) in line.got
            await table.say(life, line, Join("hits", 0, 2))
            assert table.host.counter("hits").published_answer.estimate == 2
            assert table.store.load()["hits"][1].known == ((SiteId("a", 1), 2),)

    asyncio.run(story())


def test_alpha_may_grow_but_not_shrink() -> None:
    async def story() -> None:
        async with bench() as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 20))
            with pytest.raises(InvalidParameter, match=r"at least 0\.01"):
                table.host.configure("hits", Config(alpha=0.001))
            table.host.configure("hits", Config(alpha=0.1, scheme="deterministic"))
            await table.host.flush()
            question = next(item for item in line.got if isinstance(item, StartRound))
            await table.say(life, line, Snapshot("hits", question.round, 22))
            answer = table.host.counter("hits").published_answer
            assert answer.alpha == 0.1
            assert answer.lower <= 22 <= answer.upper

    asyncio.run(story())
