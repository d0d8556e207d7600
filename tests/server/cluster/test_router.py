"""The API of a cluster member, with all shards in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import AsyncExitStack
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from countless.server.cluster.forwarding import ForwardedAuth, ForwardedRequest, respond
from countless.server.cluster.router import MEMBER_OPERATIONS, SHARD_OPERATIONS
from countless.server.cluster.shard import ShardSurroundings
from countless.server.http.access.auth import Grant
from countless.server.http.application import member_app, shard_app
from countless.server.http.history.history import Recorder
from countless.server.sessions.shares import Shares
from countless.server.settings import Config
from countless.server.site_server import SiteServer
from countless.wire.frames import Join
from countless.wire.keys import BUDGET, COUNTER, Key
from countless.wire.nats_subjects import shard_of
from support.site_server import SiteServerHarness, site_server

pytestmark = pytest.mark.slow

SHARDS = 4


class FakeMember:
    """Owns all shards."""

    def __init__(self, tables: list[SiteServerHarness]) -> None:
        self.tables = tables
        self.leased = True
        self.draining = False
        self.surroundings = ShardSurroundings()
        self.asked_without_lease = asyncio.Event()
        self.lease = SimpleNamespace(shards=SHARDS, valid=self._valid)
        apps = [shard_app(table.server, ForwardedAuth(), SHARD_OPERATIONS, Recorder(table.server)) for table in tables]
        self.shards = {number: SimpleNamespace(app=app) for number, app in enumerate(apps)}
        self.app = member_app(MEMBER_OPERATIONS, None)  # type: ignore[arg-type]
        self.app.state.member, self.app.state.access = self, ForwardedAuth()
        self.app.state.server, self.app.state.watches = tables[0].server, Shares[object](10, 1.0)

    def _valid(self) -> bool:
        if not self.leased:
            self.asked_without_lease.set()
        return self.leased

    def owner(self, counter: str) -> SiteServer:
        return self.tables[shard_of(Key(COUNTER, counter), SHARDS)].server

    async def request(self, method: str, path: str, body: bytes = b"", query: str = "") -> tuple[int, str]:
        request = ForwardedRequest(method, path, query.encode(), [], body, ["operator", "read"], None)
        response = await respond(self.app, request)
        return response.status_code, bytes(response.body).decode()

    async def get(self, path: str, query: str = "") -> Any:
        status, body = await self.request("GET", path, query=query)
        assert status == 200, body
        return json.loads(body)


@pytest.fixture
async def member() -> AsyncIterator[FakeMember]:
    async with AsyncExitStack() as stack:
        yield FakeMember([await stack.enter_async_context(site_server()) for _ in range(SHARDS)])


async def test_list_of_counters_is_sorted_and_paged_over_all_shards(member: FakeMember) -> None:
    names = [f"counter {number:04}" for number in range(1200)]
    for name in names:
        member.owner(name).create(name, Config())
    first = await member.get("/api/v1/counters")
    assert [view["counter"] for view in first["counters"]] == names[:1000]
    rest = await member.get("/api/v1/counters", f"after={first['next']}")
    assert [view["counter"] for view in rest["counters"]] == names[1000:]
    assert rest["next"] is None


async def test_budgets_are_made_in_the_shard_of_their_name_and_listed_over_all_shards(member: FakeMember) -> None:
    names = ["a/b?c", "b1", "keys/*", "x", "y"]
    assert len({shard_of(Key(BUDGET, name), SHARDS) for name in names}) == SHARDS
    for name in reversed(names):
        body = json.dumps({"name": name, "limit": 10}).encode()
        assert (await member.request("POST", "/api/v1/budgets", body))[0] == 201
        assert name in member.tables[shard_of(Key(BUDGET, name), SHARDS)].server.budgets.by_name
        assert (await member.get(f"/api/v1/budgets/{name}"))["limit"] == 10
    assert [each["name"] for each in (await member.get("/api/v1/budgets"))["budgets"]] == names
    assert (await member.request("PATCH", "/api/v1/budgets/x", b'{"limit": 20}'))[0] == 200
    assert (await member.request("POST", "/api/v1/budgets/x/reset"))[0] == 200
    assert (await member.request("DELETE", "/api/v1/budgets/y"))[0] == 204
    assert {each["limit"] for each in (await member.get("/api/v1/budgets"))["budgets"]} == {10, 20}
    status, text = await member.request("GET", "/api/v1/budgets/y")
    assert (status, "no budget 'y'" in text) == (404, True)


async def test_sites_are_listed_and_forgotten_in_every_shard(member: FakeMember) -> None:
    for table in (member.tables[1], member.tables[3]):
        session, connection = await table.connect("web")
        await table.send(session, connection, Join("hits", 0, 5))
        table.server.on_disconnect(session, connection)
    listed = await member.get("/api/v1/sites")
    assert [(site["site"], site["shard"]) for site in listed["sites"]] == [("web", 1), ("web", 3)]
    assert await member.request("DELETE", "/api/v1/sites/web") == (200, '{"forgotten":2}')


async def test_counter_is_created_in_the_shard_of_its_name(member: FakeMember) -> None:
    status, _ = await member.request("POST", "/api/v1/counters", b'{"name": "a/b?c"}')
    assert (status, list(member.owner("a/b?c").counters)) == (201, ["a/b?c"])
    assert (await member.get("/api/v1/counters/a/b?c"))["counter"] == "a/b?c"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"name": 5}', b"\xff", b"[" * 10_000])
async def test_new_counter_without_a_name_is_rejected(member: FakeMember, body: bytes) -> None:
    status, text = await member.request("POST", "/api/v1/counters", body)
    assert status == 400, text


async def test_windows_and_rolling_counts_are_read_from_the_owner(member: FakeMember) -> None:
    for number in range(8):
        name = f"a/{number}"
        status, body = await member.request("POST", "/api/v1/counters", b'{"name": "%s", "per": "day"}' % name.encode())
        assert (status, json.loads(body)["windows"]["per"]) == (201, "day")
        harness = member.tables[shard_of(Key(COUNTER, name), SHARDS)]
        session, connection = await harness.connect(f"web-{number}")
        today = (await member.get(f"/api/v1/counters/{name}", "window=today"))["start"][:10]
        period = (datetime.fromisoformat(today) - datetime(1970, 1, 1)).days
        await harness.send(session, connection, Join(f"{name}@day:{period}", 0, 5))
        assert (await member.get(f"/api/v1/counters/{name}", "window=today"))["lower"] == 5
        assert (await member.get(f"/api/v1/counters/{name}", "rolling=15m"))["upper"] == 5
        assert [row["upper"] for row in (await member.get(f"/api/v1/windows/{name}"))["windows"]] == [5]
        assert (await member.get(f"/api/v1/operator/{name}"))["windows"]["incomplete"] == []


async def test_owner_adds_up_the_series_of_a_counter(member: FakeMember) -> None:
    for number in range(8):
        name = f"a/{number}"
        harness = member.tables[shard_of(Key(COUNTER, name), SHARDS)]
        session, connection = await harness.connect(f"web-{number}")
        series = [f'{name}{{route="/{route}"}}' for route in "ab"]
        await harness.send(session, connection, Join(series[0], 0, 5), Join(series[1], 0, 3), Join(name, 0, 1))
        assert (await member.get(f"/api/v1/counters/{name}"))["estimate"] == 9
        top = await member.get(f"/api/v1/top/{name}", "share=0.3")
        assert [row["counter"] for row in top["series"]] == series
    assert [each["estimate"] for each in (await member.get("/api/v1/counters"))["counters"]][:3] == [9, 5, 3]


async def test_member_without_a_lease_does_not_answer_for_its_shards(member: FakeMember) -> None:
    member.owner("hits").create("hits", Config())
    member.leased = False
    for path in ("/api/v1/counters/hits", "/api/v1/counters", "/api/v1/watch/hits"):
        status, text = await member.request("GET", path)
        assert (status, "cannot use its broker at present" in text) == (503, True)


class EventStream:
    """The response of a watch, event by event."""

    def __init__(self, member: FakeMember, path: str, query: bytes) -> None:
        self._chunks: asyncio.Queue[str] = asyncio.Queue()
        grant = Grant(frozenset({"read"}))
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": []}
        self._task = asyncio.create_task(member.app(scope | {"countless.grant": grant}, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.body":
            await self._chunks.put(event["body"].decode())

    async def next(self) -> tuple[str, int]:
        """The kind and the estimate."""
        kind, data = (await self._chunks.get()).splitlines()[:2]
        return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))["estimate"]

    async def ended(self) -> bool:
        await self._task
        return [self._chunks.get_nowait()] == [""] and self._chunks.empty()


async def test_watch_continues_after_its_owner_was_unreachable_and_ends_with_the_counter(
    member: FakeMember,
) -> None:
    member.surroundings = ShardSurroundings(retry_s=0.0)
    table = member.tables[shard_of(Key(COUNTER, "hits"), SHARDS)]
    table.server.create("hits", Config(alpha=0.1, scheme="exact"))
    session, connection = await table.connect("web")
    events = EventStream(member, "/api/v1/watch/hits", b"over=10")
    assert await events.next() == ("answer", 0)
    member.leased = False
    await member.asked_without_lease.wait()
    await table.send(session, connection, Join("hits", 0, 50))
    member.leased = True
    assert [await events.next() for _ in range(3)] == [("answer", 50), ("possibly", 50), ("certainly", 50)]
    table.server.delete("hits")
    assert await events.ended()


async def test_watch_of_an_unknown_counter_is_not_found(member: FakeMember) -> None:
    status, text = await member.request("GET", "/api/v1/watch/unknown")
    assert (status, "no counter 'unknown'" in text) == (404, True)
    status, text = await member.request("GET", "/api/v1/watch/unknown", query="over=many")
    assert (status, "over" in text) == (400, True)
