"""Requests for a shard that another coordinator has: through the broker to its owner, and the answer back, in pieces.

Whoever received a request has checked who asks and what they may; the owner is told, and believes it, because only
coordinators may use these subjects. A stream that does not end by itself (server-sent events) goes on while the
entrance says, now and then, that somebody still reads; when the exit does not answer that, its coordinator is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from starlette.applications import Starlette

from countless.server.http.auth import Grant

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_PATIENCE = 5.0  # seconds for the first piece of an answer
_STILL_THERE = 2.0  # seconds between signs of life of a reader
_MOST_PIECE = 1 << 18
UNREACHABLE = 503


def tunnel(shard: int) -> str:
    """Where requests for a shard go."""
    return f"countless.http.{shard}"


class Call(msgspec.Struct, array_like=True, frozen=True):
    """A request, as it travels."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    scopes: list[str]
    site: str | None


class Piece(msgspec.Struct, array_like=True, frozen=True):
    """Of an answer. The first has the status and the headers."""

    body: bytes
    more: bool
    status: int = 0
    headers: list[tuple[bytes, bytes]] = []
    alive: str = ""  # where to say that somebody still reads


class Unreachable(Exception):
    """Nobody has this shard at present."""


async def pass_on(client: Client, shard: int, call: Call, send: Send) -> None:
    """Ask the owner of a shard, and send its answer."""
    inbox = client.new_inbox()
    pieces = await client.subscribe(inbox)
    keeper: asyncio.Task[None] | None = None
    try:
        await client.publish(tunnel(shard), msgspec.msgpack.encode(call), reply=inbox)
        first = _piece(await pieces.next_msg(_PATIENCE))
        if first.status == UNREACHABLE:
            raise Unreachable("its coordinator has lost its lease")
        await send({"type": "http.response.start", "status": first.status, "headers": first.headers})
        await send({"type": "http.response.body", "body": first.body, "more_body": first.more})
        piece = first
        if piece.more:
            keeper = asyncio.create_task(_keep(client, first.alive, pieces.unsubscribe))
        while piece.more:
            piece = _piece(await pieces.next_msg(None))
            await send({"type": "http.response.body", "body": piece.body, "more_body": piece.more})
    except (NatsError, TimeoutError) as error:
        raise Unreachable(str(error)) from None
    finally:
        if keeper is not None:
            keeper.cancel()
        await pieces.unsubscribe()


def _piece(message: Msg) -> Piece:
    if message.headers and "Status" in message.headers:
        raise Unreachable("no coordinator has this counter at present")
    return msgspec.msgpack.decode(message.data, type=Piece)


async def _keep(client: Client, subject: str, give_up: Callable[[], Awaitable[None]]) -> None:
    try:
        while True:
            await asyncio.sleep(_STILL_THERE)
            await client.request(subject, timeout=_STILL_THERE)
    except (NatsError, TimeoutError):
        await give_up()


class TunnelExit:
    """At the owner: plays the request to its own application."""

    def __init__(self, client: Client, app: Starlette, leased: Callable[[], bool]) -> None:
        self._client = client
        self._app = app
        self._leased = leased
        self._running: set[asyncio.Task[None]] = set()

    async def request(self, message: Msg) -> None:
        """One more."""
        task = asyncio.create_task(self._answer(message))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, message: Msg) -> None:
        call = msgspec.msgpack.decode(message.data, type=Call)
        alive, heard = self._client.new_inbox(), [monotonic()]

        async def still_there(sign: Msg) -> None:
            heard[0] = monotonic()
            await sign.respond(b"")

        signs = await self._client.subscribe(alive, cb=still_there)
        work = asyncio.ensure_future(self._play(call, message.reply, alive))
        try:
            while not work.done() and monotonic() - heard[0] < 3 * _STILL_THERE + _PATIENCE:
                await asyncio.wait([work], timeout=_STILL_THERE)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await signs.unsubscribe()

    async def _play(self, call: Call, inbox: str, alive: str) -> None:
        started: MutableMapping[str, Any] = {}

        async def send(event: MutableMapping[str, Any]) -> None:
            if event["type"] == "http.response.start":
                started.update(event)
                return
            body, more = event.get("body", b""), event.get("more_body", False)
            for start in range(0, max(1, len(body)), _MOST_PIECE):
                rest = more or start + _MOST_PIECE < len(body)
                headers, status = started.pop("headers", []), started.pop("status", 0)
                piece = Piece(body[start : start + _MOST_PIECE], rest, status, list(headers), alive)
                await self._client.publish(inbox, msgspec.msgpack.encode(piece))

        if self._leased():
            await run_call(self._app, call, send)
        else:
            await send({"type": "http.response.start", "status": UNREACHABLE})
            await send({"type": "http.response.body"})


async def run_call(app: Starlette, call: Call, send: Send) -> None:
    """Play a request to an application of this process."""
    body: list[bytes] = [call.body]

    async def receive() -> dict[str, Any]:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": call.method,
        "scheme": "http",
        "path": call.path,
        "raw_path": call.path.encode(),
        "root_path": "",
        "query_string": call.query,
        "headers": call.headers,
        "client": None,
        "server": None,
        "countless.grant": Grant(frozenset(call.scopes), call.site),
    }
    await app(scope, receive, send)
