"""Watching a counter: events when the public answer changes, and nothing that reveals who reports when."""

import asyncio
import json
from collections.abc import AsyncIterator
from math import ceil
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from countless.core.answer import Answer, State, Threshold
from countless.core.messages import Report
from countless.core.periods.window import total_answer
from countless.errors import InvalidParameter
from countless.server.http.access.auth import Access
from countless.server.http.answers.published import (
    HEARTBEAT,
    event_stream,
    parse_threshold,
    public_view,
    server_sent_events,
)
from countless.server.http.answers.sums import answer_changes
from countless.server.http.api.schemas import PublicAnswer
from countless.server.sessions.shares import Shares
from countless.server.settings import Config
from countless.server.site_server import SiteServer
from countless.server.storage.health import SaveHealth
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import new_token
from countless.wire.frames import Join, Sync
from support.site_server import site_server
from support.waiting import eventually


def watch(server: SiteServer, threshold: Threshold | None = None) -> AsyncIterator[bytes]:
    return server_sent_events(answer_changes(server, "hits"), threshold)


async def next_event(events: AsyncIterator[bytes]) -> tuple[str, dict[str, Any]]:
    kind, data, *rest = (await anext(events)).decode().split("\n")
    assert rest == ["", ""]  # no id, no retry: nothing beside the event
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def bounds_of(total: int) -> tuple[int, int]:
    return int(total / 1.1), ceil(total / 0.9)


def test_counts_are_integers_rounded_to_the_outside() -> None:
    """Of an answer with secrets, bounds follow from alpha, and the estimate may lie between two integers."""
    answer = Answer(10_000.5, 0.01, 0.05, State.HOLDING, 1, 10, "lattice")
    assert answer.bounds == pytest.approx((9901.485, 10101.515))
    shown = msgspec.json.decode(msgspec.json.encode(public_view(named("hits", answer))))
    assert [shown[field] for field in ("estimate", "lower", "upper")] == [10_000, 9_901, 10_102]
    assert {field: shown[field] for field in ("estimate", "lower", "upper")}.items() <= answer.as_dict().items()
    assert all(type(answer.as_dict()[field]) is int for field in ("estimate", "lower", "upper"))
    total = total_answer(10**30, [answer], 0, alpha=0.01, delta=0.05, scheme="lattice").as_dict()
    assert all(type(total[field]) is int for field in ("estimate", "lower", "upper"))
    assert json.loads(json.dumps(total))["estimate"] == pytest.approx(10**30)


def named(name: str, answer: Answer) -> Any:
    return SimpleNamespace(name=name, published_answer=answer, health=SaveHealth(), windows=None)


async def test_possibly_comes_before_certainly_and_each_comes_once() -> None:
    async def answers() -> AsyncIterator[PublicAnswer]:
        for total in (800, 1000, 1050, 1200, 1300):
            yield PublicAnswer("hits", total, *bounds_of(total), State.HOLDING, "")

    received = [event.decode().split("\n") async for event in server_sent_events(answers(), Threshold(1000))]
    kinds = [kind.removeprefix("event: ") for kind, *_ in received]
    assert kinds == ["answer", "answer", "possibly", "answer", "answer", "certainly", "answer"]
    assert json.loads(received[2][1].removeprefix("data: "))["estimate"] == 1000


async def test_report_that_does_not_change_the_answer_is_not_an_event() -> None:
    async with site_server() as table:
        table.server.create("hits", Config(scheme="exact"))
        session, connection = await table.connect("a")
        await table.send(session, connection, Join("hits", 0, 5))
        events = watch(table.server)
        assert (await next_event(events))[1]["estimate"] == 5
        waiting = asyncio.ensure_future(next_event(events))
        other, other_connection = await table.connect("b")
        await table.send(other, other_connection, Join("hits", 0, 0), Sync(1))  # a site more: for operators only
        await table.send(session, connection, Report("hits", 0, 5, 1), Report("hits", 0, 5, 2))
        assert table.server.counter("hits").published_answer.sites == 2
        assert not waiting.done()
        await table.send(session, connection, Report("hits", 0, 6, 3))
        assert (await waiting)[1]["estimate"] == 6


async def test_changed_alpha_of_an_exact_answer_is_no_event_and_deletion_ends_the_watch() -> None:
    async with site_server() as table:
        table.server.create("hits", Config(scheme="exact"))
        events = watch(table.server)
        await next_event(events)
        waiting = asyncio.ensure_future(anext(events))
        table.server.configure("hits", Config(alpha=0.2, scheme="exact"))
        await table.server.flush()
        assert not waiting.done()
        table.server.delete("hits")
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_watch_of_a_quiet_counter_has_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countless.server.http.answers.published.WATCH_HEARTBEAT_S", 0.0)
    async with site_server() as table:
        table.server.create("hits", Config(scheme="exact"))
        events, received = watch(table.server), list[bytes]()

        async def receive() -> None:
            received.append(await anext(events))

        await eventually(lambda: received.count(HEARTBEAT) >= 3, receive)
        assert next(event for event in received if event != HEARTBEAT).startswith(b"event: answer\n")
        assert HEARTBEAT.startswith(b":")  # a comment


async def test_watches_have_a_limit_in_all_and_for_each_caller() -> None:
    async def quiet() -> AsyncIterator[PublicAnswer]:
        yield PublicAnswer("hits", 1, 1, 1, State.EXACT, "")
        await asyncio.Event().wait()

    store = SqliteStore(None)
    tokens = {label: new_token(store, "read", label) for label in "abc"}
    state = SimpleNamespace(
        watches=Shares[object](4, 0.5),
        access=Access(store),
        server=SimpleNamespace(settings=SimpleNamespace(max_watches=4)),
    )

    def request(label: str) -> Request:
        headers = [(b"authorization", b"Bearer " + tokens[label].encode())]
        return Request({"type": "http", "headers": headers, "app": SimpleNamespace(state=state)})

    async def answer(label: str) -> int:
        """As the server does for each request, in a task of its own."""
        response = event_stream(request(label), quiet(), None)
        statuses.append(response.status_code)
        await response({"type": "http", "asgi": {"spec_version": "2.4"}}, never, ignore)
        return response.status_code

    async def never() -> Any:
        await asyncio.Event().wait()

    async def ignore(message: Any) -> None: ...

    statuses: list[int] = []
    tasks = [asyncio.create_task(answer(label)) for label in "aaabbc"]  # all arrive in one turn of the loop
    await asyncio.sleep(0)
    assert statuses == [200, 200, 503, 200, 200, 503]
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    assert event_stream(request("a"), quiet(), None).status_code == 200
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(state.watches) == 0
    store.close()


@pytest.mark.parametrize("text", ["-1", "1.5", "", "many", "٣", "9" * 78, "1e3", " 5"])
def test_threshold_that_is_not_an_integer_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="over"):
        parse_threshold(text)
