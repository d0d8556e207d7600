"""`python -m race scarce`: 50 requests at once at one replica, for units that another replica holds.

Every request goes through ASGI middleware, in this process and without HTTP, which would cost all the same.
Another replica holds all units. Before every 50 requests it gives some back, and they arrive: 30, so that two of five
requests are refused, or 50. `limits` cannot give units back: there another client of Redis lowers the count.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from functools import partial
from statistics import median
from time import perf_counter_ns
from typing import Annotated, NamedTuple

import redis
import typer
from limits import RateLimitItemPerYear
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter

import countless
from countless.asgi import LimitRequests
from countless.asgi.count_requests import App, Message, Receive, Scope, Send
from countless.client.api import ApiClient
from race.contestants.base import Case
from race.contestants.redis import RedisServer
from race.limits.contestants.base import Server
from race.limits.contestants.ours import WAIT_S, coordinator
from race.limits.play import Meter
from race.limits.table import duration
from tools.tables import Table, publish

AT_ONCE = 50
GIVEN_BACK = (30, 50)  # units, before each burst
BURSTS, WARM_UP = 200, 5
ARRIVES_S = 0.1  # what was given back
COLUMNS = ("", "units for 50 requests", "admitted", "messages a request", "p50", "p99", "last of 50")
SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}


class Replica(NamedTuple):
    app: App
    give_back: Callable[[], object]  # by another replica


class Contestant(NamedTuple):
    name: str
    server: Callable[[], Server]
    replica: Callable[
        [str, str, int, int], AbstractAsyncContextManager[Replica]
    ]  # address, name, units of a hold, holds


async def _answer(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _hello(scope: Scope, receive: Receive, send: Send) -> None:
    await _answer(send, 200)


@asynccontextmanager
async def _library(address: str, name: str, units: int, holds: int) -> AsyncIterator[Replica]:
    """Middleware as one writes it with `limits`."""
    storage = RedisStorage(f"async+redis://127.0.0.1:{address}", implementation="redispy")
    limiter, item = FixedWindowRateLimiter(storage), RateLimitItemPerYear(units * holds)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _answer(send, 200 if await limiter.hit(item, name) else 429)

    with closing(redis.Redis(port=int(address))) as other:
        await limiter.hit(item, name, cost=units * holds)
        (key,) = other.keys(f"*{name}*")
        # The library counts refused requests, too.
        yield Replica(app, lambda: other.set(key, units * (holds - 1), keepttl=True))
    await storage.bridge.get_connection().aclose()  # type: ignore[attr-defined]


@asynccontextmanager
async def _ours(address: str, name: str, units: int, holds: int) -> AsyncIterator[Replica]:
    ApiClient(address).request("POST", "/api/v1/budgets", {"name": name, "limit": units * holds, "slack": 0.0})
    with countless.connect(address, site="other") as other, countless.connect(address, site="replica") as client:
        held = [other.budget(name).reserve(units, wait=WAIT_S) for _ in range(holds)]
        yield Replica(LimitRequests(_hello, client, name), lambda: held.pop().settle(0))


_REDIS = partial(RedisServer, Case(1, 1))
CONTESTANTS = (
    Contestant("limits, fixed window", _REDIS, _library),
    Contestant("limits, fixed window, AOF", partial(_REDIS, append_only=True), _library),
    Contestant("Countless, slack 0", coordinator, _ours),
)


async def _decided(app: App) -> tuple[int, int]:
    """The status of a request, and the nanoseconds until it began to be answered."""
    begin, status, taken = perf_counter_ns(), 0, 0

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        nonlocal status, taken
        if message["type"] == "http.response.start":
            status, taken = message["status"], perf_counter_ns() - begin

    await app(SCOPE, receive, send)
    return status, taken


class Tally:
    """What became of the requests to one contestant."""

    def __init__(self, server: Server) -> None:
        self.nanoseconds = array("q")
        self.last = array("q")  # of each burst
        self.admitted = 0
        self.meter = Meter(server)

    async def burst(self, replica: Replica) -> None:
        replica.give_back()
        await asyncio.sleep(ARRIVES_S)
        decisions = await asyncio.gather(*(_decided(replica.app) for _ in range(AT_ONCE)))
        self.admitted += sum(status == 200 for status, _ in decisions)
        self.nanoseconds.extend(taken for _, taken in decisions)
        self.last.append(max(taken for _, taken in decisions))

    def row(self, name: str, units: int) -> tuple[str, ...]:
        requests, times = len(self.nanoseconds), sorted(self.nanoseconds)
        chosen = times[requests // 2], times[requests * 99 // 100], median(self.last)
        admitted, messages = f"{self.admitted:,} of {requests:,}", f"{self.meter.messages / requests:.2f}"
        return name, f"{units}", admitted, messages, *(duration(each / 1000) for each in chosen)


async def play(units: int, bursts: int) -> list[tuple[str, ...]]:
    """All contestants in turn, burst by burst: what else the machine does is the same for all."""
    async with AsyncExitStack() as stack:
        servers = [stack.enter_context(closing(each.server())) for each in CONTESTANTS]
        replicas = [
            await stack.enter_async_context(each.replica(server.address, "requests", units, WARM_UP + bursts))
            for each, server in zip(CONTESTANTS, servers, strict=True)
        ]
        for number in range(WARM_UP + bursts):
            if number in (0, WARM_UP):
                tallies = [Tally(server) for server in servers]
            for tally, replica in zip(tallies, replicas, strict=True):
                await tally.burst(replica)
        for tally in tallies:
            tally.meter.stop()
    return [tally.row(each.name, units) for tally, each in zip(tallies, CONTESTANTS, strict=True)]


def measured(bursts: int) -> Iterator[Table]:
    rows = [row for units in GIVEN_BACK for row in asyncio.run(play(units, bursts))]
    yield Table("limits-scarce", COLUMNS, rows)


def scarce(
    bursts: Annotated[int, typer.Option(min=1, help="How many times 50 requests come at once.")] = BURSTS,
    write: Annotated[bool, typer.Option("--write", help="Write the table into the docs.")] = False,
) -> None:
    """Decide 50 requests at once at one replica, whose units others hold."""
    publish(measured(bursts), save=write)
