"""Watching: an answer when it moves and not otherwise, possibly before certainly, and nothing of who reports when."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from countless.core.messages import Report
from countless.core.threshold import Threshold
from countless.errors import InvalidParameter
from countless.server.http.routes import _events, _whole
from countless.server.storage.base import Config
from countless.wire.frames import Join, Sync
from support.service import bench


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


async def next_event(events: AsyncIterator[bytes]) -> tuple[str, dict[str, Any]]:
    kind, data, *rest = (await anext(events)).decode().split("\n")
    assert rest == ["", ""]  # no id, no retry: nothing beside the event
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_possibly_comes_before_certainly_and_each_once() -> None:
    async def story() -> None:
        async with bench(scheme="exact") as table:
            counter = table.host.create("hits", Config(alpha=0.1, scheme="exact"))
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 800))
            events = _events(table.host, counter, Threshold(1000))
            heard = [await next_event(events)]
            for number, total in enumerate((1000, 1050, 1200, 1300), start=1):
                await table.say(life, line, Report("hits", 0, total, number))
                heard += [await next_event(events)]
                if total in (1000, 1200):
                    heard += [await next_event(events)]
            kinds = [kind for kind, _ in heard]
            assert kinds == ["answer", "answer", "possibly", "answer", "answer", "certainly", "answer"]
            assert heard[2][1]["estimate"] == 1000

    play(story())


def test_a_watcher_hears_nothing_of_reports_that_do_not_move_the_answer() -> None:
    async def story() -> None:
        async with bench() as table:
            counter = table.host.create("hits", Config(scheme="exact"))
            life, line = await table.connect("a")
            await table.say(life, line, Join("hits", 0, 5))
            events = _events(table.host, counter, None)
            assert (await next_event(events))[1]["estimate"] == 5
            waiting = asyncio.ensure_future(next_event(events))
            other, line_b = await table.connect("b")
            await table.say(other, line_b, Join("hits", 0, 0), Sync(1))  # one more site: for operators only
            await table.say(life, line, Report("hits", 0, 5, 1), Report("hits", 0, 5, 2))
            assert table.host.counter("hits").published_answer.sites == 2
            assert not waiting.done()
            await table.say(life, line, Report("hits", 0, 6, 3))
            assert (await waiting)[1]["estimate"] == 6

    play(story())


def test_another_alpha_is_another_answer_and_deletion_ends_the_watch() -> None:
    async def story() -> None:
        async with bench() as table:
            counter = table.host.create("hits", Config(scheme="exact"))
            events = _events(table.host, counter, None)
            await next_event(events)
            table.host.configure("hits", Config(alpha=0.2, scheme="exact"))
            await table.host.flush()
            assert (await next_event(events))[0] == "answer"
            table.host.delete("hits")
            with pytest.raises(StopAsyncIteration):
                await anext(events)

    play(story())


@pytest.mark.parametrize("text", ["-1", "1.5", "", "many", "٣", "9" * 78, "1e3", " 5"])
def test_marks_that_are_none_are_named(text: str) -> None:
    with pytest.raises(InvalidParameter, match="over"):
        _whole("over", text)
