"""`countless.limited` with a real coordinator: functions, coroutines, streams."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from flask import Blueprint, Flask

import countless
from countless import LimitExceeded, limited
from countless.errors import AboveLimit, InvalidParameter, UnknownBudget, Unreachable
from support.local_counters import counts_of
from support.service import TIMEOUT_S, Server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        for name, limit, per in (("exports/*", 2, "month"), ("running/*", 2, None), ("second", 1, None)):
            server.reader.request("POST", "/api/v1/budgets", {"name": name, "limit": limit, "slack": 0.0, "per": per})
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[countless.Client]:
    with countless.connect(server.url) as client:
        yield client


def test_calls_run_until_the_budget_of_their_arguments_is_used_up(client: countless.Client) -> None:
    @limited("exports/{tenant}", client=client, wait=TIMEOUT_S)
    def export(rows: int, *, tenant: str = "default") -> int:
        return rows

    assert [export(1), export(2), export(3, tenant="other")] == [1, 2, 3]
    with pytest.raises(LimitExceeded) as refused:
        export(4)
    assert (refused.value.budget, refused.value.units) == ("exports/default", 1)
    assert refused.value.retry_after is not None
    assert export.__name__ == "export"
    assert counts_of(client)['limited_requests{mode="enforced",policy="default",reason="exhausted"}'] == 1


async def test_coroutines_have_a_key_and_a_cost(client: countless.Client) -> None:
    @limited("exports/{key}", client=client, key=lambda user, rows: user, cost=lambda user, rows: rows, wait=TIMEOUT_S)
    async def export(user: str | None, rows: int) -> int:
        return rows

    assert [await export("a", 2), await export("b", 1), await export("b", 0), await export(None, 9)] == [2, 1, 0, 9]
    with pytest.raises(LimitExceeded):
        await export("a", 1)
    with pytest.raises(AboveLimit):
        await export("b", 3)
    with pytest.raises(InvalidParameter, match="key must be text"):
        await export("", 1)


async def test_stream_holds_its_units_until_it_ends(client: countless.Client) -> None:
    @limited("running/{model}", client=client, hold=True, wait=TIMEOUT_S)
    async def tokens(model: str) -> AsyncGenerator[str]:
        yield "a"
        yield "b"

    first, second = tokens("big"), tokens("big")
    assert [await anext(first), await anext(second)] == ["a", "a"]
    third = asyncio.create_task(anext(tokens("big")))
    assert not (await asyncio.wait([third], timeout=0))[0]
    assert [item async for item in first] == ["b"]  # to its end
    assert await third == "a"
    fourth = asyncio.create_task(anext(tokens("big")))
    await second.aclose()  # as for a caller who has gone
    assert await fourth == "a"


async def test_stream_gets_what_its_consumer_sends_and_throws(client: countless.Client) -> None:
    @limited("running/{model}", client=client, hold=True, wait=TIMEOUT_S)
    async def chat(model: str) -> AsyncGenerator[str, str]:
        question = yield "hello"
        try:
            yield question
        except ValueError:
            yield "thrown"

    items = chat("chat")
    assert [await anext(items), await items.asend("why?"), await items.athrow(ValueError())] == [
        *("hello", "why?", "thrown")
    ]
    assert [item async for item in items] == []

    @asynccontextmanager
    @limited("running/{model}", client=client, hold=True, wait=TIMEOUT_S)
    async def session(model: str) -> AsyncGenerator[str]:
        with suppress(KeyError):
            yield str(client.budget("running/chat"))

    def fail() -> None:
        raise KeyError

    async with session("chat") as state:
        assert state.endswith("0 spent, 1 held, 0 remaining>")
        fail()
    assert str(client.budget("running/chat")).endswith("0 held, 0 remaining>")  # the unit is returned


async def test_cancelled_calls_keep_no_units(client: countless.Client) -> None:
    @limited("running/{model}", client=client, hold=True, wait=TIMEOUT_S)
    async def run(model: str) -> None:
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()
    running = [asyncio.create_task(run("cancelled")) for _ in range(2)]
    await started.wait()
    waiting = [asyncio.create_task(run("cancelled")) for _ in range(20)]
    assert not (await asyncio.wait(waiting, timeout=0))[0]
    for task in [*waiting[:10], *running, *waiting[10:]]:
        task.cancel()
    await asyncio.gather(*running, *waiting, return_exceptions=True)
    with client.budget("running/cancelled").acquire(2, wait=TIMEOUT_S) as both:
        assert both.units == 2


def test_generator_and_function_hold_their_units_while_they_run(client: countless.Client) -> None:
    @limited("running/{model}", client=client, hold=True, wait=TIMEOUT_S)
    def stream(model: str) -> Iterator[str]:
        yield str(client.budget("running/small"))

    @limited("second", client=client, hold=True, wait=TIMEOUT_S)
    def run() -> str:
        return str(client.budget("second"))

    assert [*stream("small"), *stream("small")] == ["<ClientBudget 'running/small': 0 spent, 1 held, 0 remaining>"] * 2
    assert [run(), run()] == ["<ClientBudget 'second': 0 spent, 1 held, 0 remaining>"] * 2

    @limited("second", client=client, hold=True, wait=TIMEOUT_S)
    def fail() -> None:
        raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        fail()
    assert run() == "<ClientBudget 'second': 0 spent, 1 held, 0 remaining>"


def test_call_without_a_rule_or_a_coordinator_follows_on_unreachable(
    client: countless.Client, unused_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def call() -> str:
        return "ran"

    with pytest.raises(UnknownBudget):
        limited("none", client=client, wait=TIMEOUT_S)(call)()
    assert "create the rule: countless budget create none --limit N --per minute" in caplog.text
    with pytest.raises(UnknownBudget):
        limited("none", client=client, wait=TIMEOUT_S, hold=True)(call)()
    assert "create the rule: countless budget create none --limit N --kind in_flight" in caplog.text
    away = countless.connect(unused_url)
    with pytest.raises(Unreachable):
        limited("none", client=away, wait=0)(call)()
    assert limited("none", client=away, wait=0, on_unreachable="allow")(call)() == "ran"
    away.close(0)


def test_client_is_ready_when_the_rules_of_its_limits_exist(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with countless.connect(server.url) as client:
        assert client.ready(0)  # it needs nothing
        limited("exports/{tenant}", client=client)
        limited("second", client=client)
        assert client.ready(TIMEOUT_S)
        limited("later/{tenant}", client=client)
        assert not client.ready(TIMEOUT_S)
        assert not client.ready(TIMEOUT_S)
        (line,) = [record.message for record in caplog.records if "limit without a rule" in record.message]
        assert line.endswith("create it: countless budget create 'later/*' --limit N --per minute")
        limited("exports", client=client, hold=True)
        assert not client.ready(TIMEOUT_S)
        assert caplog.messages[-1].endswith("create it: countless budget create exports --limit N --kind in_flight")
        server.reader.request("POST", "/api/v1/budgets", {"name": "exports", "limit": 1, "kind": "in_flight"})
        server.reader.request("POST", "/api/v1/budgets", {"name": "later/*", "limit": 1})
        assert client.ready(TIMEOUT_S)


def test_default_client_is_ready_when_the_rules_of_limits_without_a_client_exist(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countless.client.default._client", None)
    monkeypatch.setattr("countless.client.default._expected", [])
    monkeypatch.setenv("COUNTLESS_URL", server.url)
    limited("exports/{tenant}")
    with countless.default_client() as client:
        assert countless.default_client() is client
        assert client.ready(TIMEOUT_S)
        limited("nothing/{tenant}")
        assert not client.ready(TIMEOUT_S)


def test_client_without_a_coordinator_is_not_ready(unused_url: str) -> None:
    client = countless.connect(unused_url)
    limited("all", client=client)
    assert not client.ready(0)
    client.close(0)


@pytest.mark.parametrize("make", [FastAPI, APIRouter, lambda: Flask("a"), lambda: Blueprint("a", "a")])
def test_limit_above_the_route_is_an_error_and_below_it_works(
    make: Callable[[], Any], client: countless.Client
) -> None:
    def above() -> None: ...

    def below() -> None: ...

    app, limit = make(), limited("all", client=client)
    with pytest.raises(InvalidParameter, match=r"above is registered with (fastapi|flask) already"):
        limit(app.get("/above")(above))
    app.get("/below")(limit(below))


@pytest.mark.parametrize("module", ["mcp.server.tools", "aiohttp.web_routedef", "ninja.operation"])
def test_limit_above_a_decorator_that_keeps_the_function_is_an_error(module: str, client: countless.Client) -> None:
    class Tool:
        def __init__(self, function: Callable[..., Any]) -> None:
            self.function = function

    Tool.__module__ = module

    def search() -> None: ...

    tools = {"search": Tool(search)}
    with pytest.raises(InvalidParameter, match=r"search is registered with (mcp|aiohttp|ninja) already"):
        limited("all", client=client)(search)
    assert tools


def test_methods_and_partial_functions_are_limited(client: countless.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Service:
        @limited("exports/{tenant}", client=client, wait=TIMEOUT_S)
        def export(self, tenant: str) -> str:
            return tenant

        @staticmethod
        @limited("exports/{tenant}", client=client, wait=TIMEOUT_S)
        def import_(tenant: str) -> str:
            return tenant

    monkeypatch.delattr("gc.get_referrers")  # it visits every object; Django decorates methods for each request
    assert [Service().export("methods"), Service.import_("methods")] == ["methods"] * 2
    for call in (Service().export, partial(Service().export, "methods")):
        with pytest.raises(LimitExceeded):
            limited("exports/{key}", client=client, key=lambda *_: "methods", wait=TIMEOUT_S)(call)("methods")
    assert limited("exports/{key}", client=client, key=lambda text: text, wait=TIMEOUT_S)(len)("three") == 5


def test_wrong_use_is_named_when_the_function_is_decorated(client: countless.Client) -> None:
    def call(user: str) -> None: ...

    for budget, options, field in (
        ("keys/{key}", {}, "budget"),
        ("all", {"key": call}, "budget"),
        ("keys/{key}", {"key": "user"}, "key"),
        ("all", {"client": countless.connect}, "client"),
        ("all", {"cost": -1}, "cost"),
        ("all", {"hold": 1}, "hold"),
        ("all", {"on_unreachable": "guess"}, "on_unreachable"),
    ):
        with pytest.raises(InvalidParameter) as error:
            limited(budget, **({"client": client} | options))(call)
        assert error.value.parameter == field, budget
    with pytest.raises(InvalidParameter, match="put limited below"):
        limited("all", client=client)(object())  # type: ignore[arg-type]
