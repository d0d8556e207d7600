"""Labels beyond the cap: counted in the overflow series, so that the total is right and the coordinator stays small."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from countless.core.messages import Report, SetTrigger, Snapshot, StartRound
from countless.errors import InvalidParameter
from countless.server.storage.base import Config
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import Hello, IncarnationRetired, Join, Leave, LeaveAck, Rejoin
from support.service import FakeConnection, bench

OVERFLOW = 'hits{overflow="true"}'


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def series(number: int) -> str:
    return f'hits{{route="{number}"}}'


def total(host: Any) -> int:
    return sum(counter.coordinator.known_total for counter in host.counters.values())


def test_beyond_the_cap_everything_is_counted_in_the_overflow_series_however_many_sites_bring_it() -> None:
    async def story() -> None:
        async with bench(label_cap=3) as table:
            for site in range(4):
                life, line = await table.connect(f"web-{site}")
                for number in range(2 * site, 2 * site + 2):
                    told = await table.say(life, line, Join(series(number), 0, 10), Report(series(number), 0, 12, 2))
                    assert [item.counter for item in told if isinstance(item, SetTrigger)] == [series(number)]
            assert sorted(table.host.counters) == sorted([OVERFLOW, *map(series, range(3))])
            assert table.host.counter(OVERFLOW).published_answer.estimate == 5 * 12
            assert total(table.host) == 8 * 12
            assert table.host.overflowed == {"hits": 5}

    play(story())


def test_a_series_in_the_overflow_lives_through_silence_restarts_and_the_end() -> None:
    async def story() -> None:
        store = SqliteStore(None)
        async with bench(store, label_cap=0) as table:
            life, line = await table.connect("web")
            await table.say(life, line, Join("hits", 0, 1), Join(series(1), 0, 10), Join(series(2), 0, 20))
            assert await table.say(life, line, Leave(series(2), 0, 21)) == [LeaveAck(series(2))]
        async with bench(store, label_cap=0) as table:
            life, line = await table.connect("web")
            told = await table.say(life, line, Join(series(1), 0, 15), Join(series(2), 0, 21))
            assert LeaveAck(series(2)) in told
            question = next(item for item in told if isinstance(item, StartRound))
            assert question.counter == series(1)
            await table.say(life, line, Snapshot(series(1), question.round, 15))
            assert table.host.counter(OVERFLOW).published_answer.estimate == 15 + 21
            table.host.on_disconnect(life, line)
            await table.wait(11)
            assert table.host.counter(OVERFLOW).operator_view()["silent"] == ["web"]
            assert table.host.drop_site("web") == 1
            await table.host.flush()
            again = FakeConnection()
            assert await table.host.on_hello(again, Hello(1, "web", 1)) is None
            assert again.got == [IncarnationRetired((("hits", 1), (series(1), 15), (series(2), 21)))]

    play(story())


def test_deleting_the_overflow_series_sends_its_sites_back_to_nothing() -> None:
    async def story() -> None:
        async with bench(label_cap=0) as table:
            life, line = await table.connect("web")
            await table.say(life, line, Join(series(1), 0, 10))
            line.got.clear()
            table.host.delete(OVERFLOW)
            table.host.on_frame(life, line, [Report(series(1), 0, 11, 1)], 10)  # was under way
            await table.host.flush()
            assert line.got == [Rejoin(series(1), keep_count=False)]
            await table.say(life, line, Join(series(1), 0, 2))
            assert total(table.host) == 2

    play(story())


def test_series_have_the_rules_of_their_counter_and_operators_keep_to_the_cap_too() -> None:
    async def story() -> None:
        async with bench() as table:
            table.host.create("hits", Config(alpha=0.25, label_cap=1))
            life, line = await table.connect("web")
            await table.say(life, line, Join(series(1), 0, 10), Join(series(2), 0, 10), Join("misses{x}", 0, 1))
            assert table.host.counter(series(1)).config.alpha == table.host.counter(OVERFLOW).config.alpha == 0.25
            with pytest.raises(InvalidParameter, match="label_cap"):
                table.host.create(series(3), Config())
            table.host.delete(series(1))
            table.host.create(series(3), Config())

    play(story())


def test_the_overflow_has_an_end_too() -> None:
    async def story() -> None:
        async with bench(label_cap=0, max_sites=3) as table:
            life, line = await table.connect("web")
            await table.say(life, line, *(Join(series(number), 0, 1) for number in range(10)))
            assert total(table.host) == 3
            assert table.host.dropped["counter refused"] == 7

    play(story())
