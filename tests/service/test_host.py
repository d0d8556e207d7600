"""The host on a table: what is saved before what is sent, who is silent, who comes back, who lies."""

import asyncio
import sqlite3
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.answer import State
from countless.core.messages import Address, Repace, Report, Snapshot, StartRound
from countless.errors import InvalidParameter, ProtocolError
from countless.service.host import Host
from countless.service.settings import Settings
from countless.service.store import Changes, Config, Store
from countless.transports.frames import Again, Buried, Hello, Join, Leave, Left, Refused, Sync, Synced, Welcome
from support.service import FakeLine, bench


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


class SlowStore(Store):
    """A disk that is full until somebody makes room."""

    full = False

    def save(self, changes: Changes) -> None:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        super().save(changes)


def test_nothing_is_sent_or_shown_before_it_is_saved() -> None:
    async def story() -> None:
        store = SlowStore(None)
        async with bench(store) as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 5))
            line.got.clear()
            store.full = True
            table.host.hear(life, line, [Report("hits", 0, 9, 1), Sync(1)], 10)
            while table.host.failing is None:
                await asyncio.sleep(0)
            assert line.got == []
            assert table.host.counter("hits").visible.estimate == 5
            assert table.host.counter("hits").coordinator.published == 9
            store.full = False
            await table.host.settled()
            assert Synced(1) in line.got
            assert table.host.counter("hits").visible.estimate == 9
            assert table.host.failing is None

    play(story())


def test_a_restart_asks_everybody_and_the_total_does_not_fall() -> None:
    async def story() -> None:
        store = Store(None)
        async with bench(store) as table:
            a, line_a = await table.connect("a")
            b, line_b = await table.connect("b")
            await table.say(a, line_a, Join("hits", 0, 30))
            await table.say(b, line_b, Join("hits", 0, 10))
            assert table.host.counter("hits").visible.estimate == 40
        async with bench(store) as table:
            await table.host.settled()
            counter = table.host.counter("hits")
            assert (counter.waking, counter.visible.state, counter.visible.estimate) == (True, State.LEARNING, 40)
            for site, count in (("a", 35), ("b", 11)):
                life, line = await table.connect(site)
                told = await table.say(life, line, Join("hits", 0, count))
                question = next(item for item in told if isinstance(item, StartRound))
                assert counter.visible.estimate >= 40
                await table.say(life, line, Snapshot("hits", question.round, count))
            assert (counter.waking, counter.visible.estimate, counter.coordinator.known_total) == (False, 46, 46)

    play(story())


def test_a_silent_site_degrades_the_answer_and_is_named_until_it_is_back() -> None:
    async def story() -> None:
        async with bench(silent_after=10.0) as table:
            a, line_a = await table.connect("a")
            b, line_b = await table.connect("b")
            await table.say(a, line_a, Join("hits", 0, 30))
            await table.say(b, line_b, Join("hits", 0, 10))
            await table.wait(49)
            await table.say(b, line_b, Sync(0))
            assert table.host.counter("hits").visible.silent == ()
            await table.wait(2)
            answer = table.host.counter("hits").visible
            assert (answer.state, answer.silent, answer.estimate) == (State.DEGRADED, ("a",), 40)
            assert line_a.closed == "no sign of life"
            a, line_a = await table.connect("a")
            await table.say(a, line_a, Join("hits", 0, 33))
            assert table.host.counter("hits").visible.silent == ()

    play(story())


def test_who_owes_an_answer_or_has_hung_up_is_silent_sooner() -> None:
    async def story() -> None:
        async with bench(silent_after=10.0) as table:
            lives = [await table.connect(name) for name in "abc"]
            for life, line in lives:
                await table.say(life, line, Join("hits", 0, 10))
            await table.wait(25)
            table.host.configure("hits", Config(alpha=0.2))  # asks everybody
            await table.say(*lives[0], Sync(0))
            table.host.lost(*lives[2])
            await table.wait(9)
            assert table.host.counter("hits").visible.silent == ()
            await table.wait(2)
            assert table.host.counter("hits").visible.silent == ("b", "c")

    play(story())


def test_a_life_given_up_by_mistake_comes_back_with_the_rest() -> None:
    async def story() -> None:
        async with bench(silent_after=10.0) as table:
            a, line = await table.connect("a", 1)
            await table.say(a, line, Join("hits", 0, 30))
            table.host.lost(a, line)
            await table.wait(11)
            b, line_b = await table.connect("a", 2)  # the same name, while the first is silent
            await table.say(b, line_b, Join("hits", 0, 7))
            counter = table.host.counter("hits")
            assert (counter.visible.estimate, counter.visible.sites, counter.visible.silent) == (37, 1, ())
            line = FakeLine()
            assert await table.host.hello(line, Hello(1, "a", 1)) is None
            assert line.got == [Buried((("hits", 30),))]

    play(story())


def test_lives_of_one_name_may_be_there_together() -> None:
    async def story() -> None:
        async with bench() as table:
            for worker in (1, 2, 3):
                life, line = await table.connect("web", worker)
                await table.say(life, line, Join("hits", 0, 5))
            assert table.host.counter("hits").visible.estimate == 15

    play(story())


def test_last_words_are_confirmed_however_often_they_are_said() -> None:
    async def story() -> None:
        store = Store(None)
        async with bench(store) as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 5), Join("misses", 0, 1))
            assert Left("hits") in await table.say(life, line, Leave("hits", 0, 8))
            assert await table.say(life, line, Leave("hits", 0, 8)) == [Left("hits")]
        async with bench(store) as table:  # it did not hear that, and the coordinator has restarted
            life, line = await table.connect("a")
            assert Left("hits") in await table.say(life, line, Join("hits", 0, 8), Report("hits", 0, 8, 1))
            assert table.host.counter("hits").coordinator.known_total == 8

    play(story())


def test_a_coordinator_without_its_memory_asks_sites_to_begin_again() -> None:
    async def story() -> None:
        async with bench() as table:
            life, line = await table.connect("a")
            told = await table.say(life, line, Join("hits", 6, 20), Snapshot("hits", 6, 4), Report("hits", 6, 15, 2))
            assert Again("hits", keep=True) in told
            told = await table.say(life, line, Join("hits", 0, 20))
            assert [item for item in told if isinstance(item, Repace)]
            assert table.host.counter("hits").visible.estimate == 20

    play(story())


def test_deleting_a_counter_sends_its_sites_back_to_nothing() -> None:
    async def story() -> None:
        async with bench() as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 20))
            table.host.delete("hits")
            table.host.hear(life, line, [Report("hits", 0, 60, 9)], 10)  # was under way
            await table.host.settled()
            assert Again("hits", keep=False) in line.got
            await table.say(life, line, Join("hits", 0, 2))
            assert table.host.counter("hits").visible.estimate == 2
            assert table.store.load()["hits"][1].known == ((Address("a", 1), 2),)

    play(story())


def test_limits_are_refusals_not_crashes() -> None:
    async def story() -> None:
        async with bench(max_counters=2, max_counters_per_site=1) as table:
            a, line_a = await table.connect("a")
            b, line_b = await table.connect("b")
            c, line_c = await table.connect("c")
            await table.say(a, line_a, Join("one", 0, 1))
            told = await table.say(a, line_a, Join("two", 0, 1), Report("two", 0, 2, 1))
            assert [item.counter for item in told if isinstance(item, Refused)] == ["two"]
            await table.say(b, line_b, Join("two", 0, 1))
            told = await table.say(c, line_c, Join("three", 0, 1))
            assert [item.counter for item in told if isinstance(item, Refused)] == ["three"]
            assert sorted(table.host.counters) == ["one", "two"]

    play(story())


def test_alpha_may_grow_but_not_shrink() -> None:
    async def story() -> None:
        async with bench() as table:
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 20))
            with pytest.raises(InvalidParameter, match=r"at least 0\.01"):
                table.host.configure("hits", Config(alpha=0.001))
            table.host.configure("hits", Config(alpha=0.1, scheme="deterministic"))
            await table.host.settled()
            question = next(item for item in line.got if isinstance(item, StartRound))
            await table.say(life, line, Snapshot("hits", question.round, 22))
            answer = table.host.counter("hits").visible
            assert answer.alpha == 0.1
            assert answer.lower <= 22 <= answer.upper

    play(story())


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

    play(story())


@pytest.mark.parametrize("hello", [Hello(2, "a", 1), Hello(0, "a", 1), Hello(1, "a", 1 << 63)])
def test_strange_hellos_are_protocol_errors(hello: Hello) -> None:
    async def story() -> None:
        async with bench() as table:
            with pytest.raises(ProtocolError):
                await table.host.hello(FakeLine(), hello)

    play(story())


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


def assert_small(host: Host) -> None:
    """Nothing that liars can say makes anything grow beyond its limit."""
    assert len(host.counters) <= 4
    assert len(host.lives) <= 5  # two names, two incarnations each, and the honest one
    for life in host.lives:
        assert len(life.counters) + len(life.left) <= 3
        assert life.line is None or len(life.line.void) <= 3 + 5  # of its own doing, and of counters deleted under it
    assert len(host.families.overflowed) <= 1


@given(st.lists(steps, max_size=25))
def test_whatever_two_liars_say_the_honest_site_is_not_touched(story: list[tuple[str, str, Any]]) -> None:
    async def run() -> None:
        store = Store(None)
        left = list(story)
        shown: float = 0
        while True:
            async with bench(store, silent_after=10.0, label_cap=1, max_counters=4, max_counters_per_site=3) as table:
                honest, line = await table.connect("honest", 77)
                await table.say(honest, line, Join("kept", 0, 1000))
                while left and left[0][0] != "restart":
                    await step(table, *left.pop(0))
                    await table.host.settled()
                    counter = table.host.counter("kept")
                    assert counter.coordinator.known_of(Address("honest", 77)) == 1000
                    assert counter.visible.estimate >= shown
                    shown = counter.visible.estimate
                    assert_small(table.host)
                assert all(isinstance(item, Welcome | Repace | StartRound) for item in line.got)
            if not left:
                return
            left.pop(0)
            lines.clear()

    lines: dict[str, tuple[Any, FakeLine]] = {}

    async def step(table: Any, kind: str, name: str, argument: Any) -> None:
        try:
            if kind == "reconnect":
                fresh = FakeLine()
                lines[name] = (await table.host.hello(fresh, Hello(1, name, argument)), fresh)
            elif kind == "say" and name in lines and lines[name][0] is not None:
                table.host.hear(*lines[name], argument, 10)
            elif kind == "wait":
                honest = table.host.lives.get(Address("honest", 77))
                honest.line.heard, honest.asked = table.time + 26, None
                await table.wait(26)
            elif kind == "delete" and name in table.host.counters:
                table.host.delete(name)
            elif kind == "forget":
                table.host.forget("x")
        except ProtocolError:
            life, broken = lines[name]
            table.host.lost(life, broken)

    asyncio.run(run())


class LoopStore(Store):
    """A disk that needs the loop to go on, as a broker does."""

    blocked = False
    gate: asyncio.Event
    loop: asyncio.AbstractEventLoop

    def save(self, changes: Changes) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self.gate.wait(), self.loop).result(5)
        except TimeoutError:
            self.blocked = True
        super().save(changes)


def test_the_last_save_waits_for_the_one_before_without_blocking_the_loop() -> None:
    async def story() -> None:
        store = LoopStore(None)
        store.gate, store.loop = asyncio.Event(), asyncio.get_running_loop()
        host = Host(store, Settings())
        running = asyncio.create_task(host.run())
        host.create("hits", Config())
        while not store.gate._waiters:
            await asyncio.sleep(0)
        running.cancel()
        stopping = asyncio.create_task(host.stop())
        await asyncio.sleep(0)
        store.gate.set()
        await stopping
        assert not store.blocked
        assert list(store.load()) == ["hits"]

    play(story())
