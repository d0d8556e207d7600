"""HTTP requests for a shard that another coordinator owns: request and reply through the broker.

The coordinator that received the request has authenticated the caller and forwards what the caller may do. The owner
trusts this, because the broker's permissions let only coordinators publish to these subjects. A response may be larger
than a message of the broker, so it travels in chunks. It must end by itself: server-sent events are not forwarded
(`server/cluster/router.py` polls instead).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp

from countless.server.cluster.broker import BROKER_ERRORS
from countless.server.http.access.auth import NOTHING, Grant
from countless.wire.nats_subjects import forward_subject

log = logging.getLogger("countless.nats")

_CHUNK_TIMEOUT_S = 5.0
_CHUNK_BYTES = 1 << 18
_GRANT = "countless.grant"  # in the ASGI scope
_NOT_OWNER = 503


class ForwardedRequest(msgspec.Struct, array_like=True, frozen=True):
    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    scopes: list[str]  # what the caller may do
    site: str | None


class ResponseChunk(msgspec.Struct, array_like=True, frozen=True):
    """Status and headers are those of the first chunk."""

    body: bytes
    more: bool
    status: int = 0
    headers: list[tuple[bytes, bytes]] = []


class OwnerUnreachable(Exception):
    """No coordinator owns this shard at present, or the owner does not answer."""


async def forward(client: Client, shard: int, request: ForwardedRequest) -> Response:
    """The response of the shard's owner. Raises OwnerUnreachable."""
    inbox = client.new_inbox()
    try:
        replies = await client.subscribe(inbox)
        try:
            await client.publish(forward_subject(shard), msgspec.msgpack.encode(request), reply=inbox)
            first = chunk = _decode_chunk(await replies.next_msg(_CHUNK_TIMEOUT_S))
            body = bytearray(first.body)
            while chunk.more:
                chunk = _decode_chunk(await replies.next_msg(_CHUNK_TIMEOUT_S))
                body += chunk.body
        finally:
            await replies.unsubscribe()
    except BROKER_ERRORS as error:
        raise OwnerUnreachable(str(error)) from None
    if first.status == _NOT_OWNER:
        raise OwnerUnreachable("the coordinator has lost its lease")
    if dict(first.headers).get(b"content-length", b"%d" % len(body)) != b"%d" % len(body):
        raise OwnerUnreachable("a chunk of the response was lost")
    return _response(first.status, first.headers, body)


def _decode_chunk(message: Msg) -> ResponseChunk:
    if message.headers and "Status" in message.headers:  # of the broker: no subscriber
        raise OwnerUnreachable("no coordinator owns this shard at present")
    return msgspec.msgpack.decode(message.data, type=ResponseChunk)


class ForwardHandler:
    """At the owner: passes forwarded requests to the shard's application."""

    def __init__(self, client: Client, app: ASGIApp, leased: Callable[[], bool]) -> None:
        self._client = client
        self._app = app
        self._leased = leased
        self._tasks: set[asyncio.Task[None]] = set()

    async def on_message(self, message: Msg) -> None:
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Msg) -> None:
        request = msgspec.msgpack.decode(message.data, type=ForwardedRequest)
        try:
            response = await respond_as_owner(self._app, request, self._leased)
        except OwnerUnreachable:
            response = Response(status_code=_NOT_OWNER)
        try:
            for chunk in _chunks(response):
                await self._client.publish(message.reply, msgspec.msgpack.encode(chunk))
        except (NatsError, OSError) as error:
            log.info("reply to a forwarded request failed: %r", error)


def _chunks(response: Response) -> Iterator[ResponseChunk]:
    body, status, headers = bytes(response.body), response.status_code, response.raw_headers
    for start in range(0, max(1, len(body)), _CHUNK_BYTES):
        end = start + _CHUNK_BYTES
        yield ResponseChunk(body[start:end], end < len(body), status, headers)
        status, headers = 0, []


async def respond_as_owner(app: ASGIApp, request: ForwardedRequest, leased: Callable[[], bool]) -> Response:
    """Raises OwnerUnreachable if the lease is not valid before or after: a poll may take longer than a lease lasts."""
    if leased():
        response = await respond(app, request)
        if leased():
            return response
    raise OwnerUnreachable("lease expired")


async def respond(app: ASGIApp, request: ForwardedRequest) -> Response:
    status, headers, body = 0, [], bytearray()
    unread = [request.body]

    async def receive() -> dict[str, Any]:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        await asyncio.Event().wait()  # the caller does not disconnect
        return {"type": "http.disconnect"}

    async def send(event: MutableMapping[str, Any]) -> None:
        nonlocal status, headers
        if event["type"] == "http.response.start":
            status, headers = event["status"], list(event.get("headers", []))
        else:
            body.extend(event.get("body", b""))

    scope = {
        "type": "http",
        "method": request.method,
        "path": request.path,
        "query_string": request.query,
        "headers": request.headers,
        _GRANT: Grant(frozenset(request.scopes), request.site),
    }
    await app(scope, receive, send)
    return _response(status, headers, body)


def _response(status: int, headers: list[tuple[bytes, bytes]], body: bytes | bytearray) -> Response:
    response = Response(bytes(body), status)
    response.raw_headers = headers
    return response


class ForwardedAuth:
    """Implements `Authenticator` for a shard's application: what the first coordinator found."""

    def authenticate(self, caller: HTTPConnection) -> Grant:
        grant: Grant = caller.scope.get(_GRANT, NOTHING)
        return grant
