"""The HTTP face of one coordinator among many: it answers for every counter, its own or not.

A request about one counter goes to the application of the shard's owner, here or through the tunnel. Requests about all
of them go to every shard, and the answers are put together. Who may ask is decided here, once.
"""

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from countless.server.cluster.forwarding import Call, Unreachable, pass_on, run_call
from countless.server.cluster.member import Member
from countless.server.http.auth import NOTHING, Access, Grant
from countless.server.http.openapi import error, json
from countless.wire.nats_subjects import shard_of

_ABOUT_ONE = ("counters", "operator", "watch")
_MOST_BODY = (1 << 16) + 1  # one byte more than any handler takes: it says so itself
_MOST_LISTED = 1000
_WATCH = "/api/v1/watch/"
_PAUSE = 0.2  # seconds until the next owner of a counter is looked for
_AWAY = "no coordinator has this counter at present; one will within the lease"


class PassedOn:
    """The access of a shard's own application: what the front found out."""

    def authenticate(self, caller: HTTPConnection) -> Grant:
        """As it was passed on; nobody comes here by another way."""
        grant: Grant = caller.scope.get("countless.grant", NOTHING)
        return grant


class Relay:
    """Passes an answer on; an endless one may come in several pieces, from one owner after the other."""

    def __init__(self, send: Send, endless: bool) -> None:
        self.status = 0
        self._send = send
        self._endless = endless
        self._first = 0  # the status that was passed on

    @property
    def goes_on(self) -> bool:
        """Whether there may be more to come."""
        return self._endless and self.status == self._first == 200

    async def __call__(self, event: MutableMapping[str, Any]) -> None:
        """One event of an answer."""
        if event["type"] == "http.response.start":
            self.status = event["status"]
            if not self._first:
                self._first = self.status
                await self._send(event)
        elif self.goes_on:
            await self._send({**event, "more_body": True})
        elif self.status == self._first:
            await self._send(event)

    async def end(self) -> None:
        """Of an endless one."""
        if self._endless and self._first == 200:
            await self._send({"type": "http.response.body"})


class Front:
    """An ASGI application."""

    def __init__(self, member: Member, access: Access, local: ASGIApp) -> None:
        self._member = member
        self._access = access
        self._local = local  # for whatever is not about counters: probes, metrics, the page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whichever way it must go."""
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008, "reason": "sites connect through the broker"})
        _, _, version, kind, *rest = [*scope["path"].split("/", 4), "", "", "", ""][:5]
        if version != "v1" or kind not in (*_ABOUT_ONE, "sites"):
            return await self._local(scope, receive, send)
        call = await self._call(scope, receive)
        if kind in _ABOUT_ONE and (rest[0] or call.method != "GET"):
            name = rest[0] or _name_in(call.body)
            return await self._one(shard_of(name, self._member.number), call, receive, send)
        response = await self._all(call, _sites if kind == "sites" else _counters)
        return await response(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive) -> Call:
        request = Request(scope, receive)
        grant, body = self._access.authenticate(request), bytearray()
        async for chunk in request.stream():
            body += chunk[: _MOST_BODY - len(body)]
        headers = [(name, value) for name, value in scope["headers"] if name in (b"accept", b"content-type")]
        query = scope.get("query_string", b"")
        return Call(scope["method"], scope["path"], query, headers, bytes(body), sorted(grant.scopes), grant.site)

    async def _one(self, shard: int, call: Call, receive: Receive, send: Send) -> None:
        answer = asyncio.ensure_future(self._answer(shard, call, send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                answer.result()
        finally:
            answer.cancel()
            gone.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)

    async def _answer(self, shard: int, call: Call, send: Send) -> None:
        """Who watches a counter goes on watching when it moves: the next owner is asked for the rest."""
        relay = Relay(send, endless=call.path.startswith(_WATCH))
        while True:
            try:
                await self._ask(shard, call, relay)
            except Unreachable:
                if not relay.status:
                    return await error(_AWAY, 503)({"type": "http"}, _never, send)
            if not relay.goes_on or self._member.draining:
                return await relay.end()
            await asyncio.sleep(_PAUSE)

    async def _ask(self, shard: int, call: Call, send: Send) -> None:
        ours = self._member.shards.get(shard)
        if ours is None:
            await pass_on(self._member.client, shard, call, send)
        elif self._member.leased():
            await run_call(ours.app, call, send)
        else:
            raise Unreachable(_AWAY)

    async def _all(self, call: Call, merge: Callable[[list[Any]], Any]) -> Response:
        try:
            answers = await asyncio.gather(*(self._collect(shard, call) for shard in range(self._member.number)))
        except Unreachable:
            return error(_AWAY, 503)
        refused = next((answer for answer in answers if answer[0] >= 400), None)
        if refused is not None:
            return json(refused[1], refused[0])
        return json(merge([content for _, content in answers]))

    async def _collect(self, shard: int, call: Call) -> tuple[int, Any]:
        status, body = 0, b""

        async def send(event: MutableMapping[str, Any]) -> None:
            nonlocal status, body
            status = event.get("status", status)
            body += event.get("body", b"")

        await self._ask(shard, call, send)
        content = msgspec.json.decode(body)
        for site in content.get("sites", ()):
            site["shard"] = shard
        return status, content


def _name_in(body: bytes) -> str:
    """Of the counter that a body is about; if it has none, any shard can say so."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any]).get("name") or ""
    except msgspec.DecodeError:
        return ""


def _counters(pages: list[Any]) -> dict[str, Any]:
    """The first names of all shards are among the first of each."""
    found = sorted((view for page in pages for view in page["counters"]), key=lambda view: str(view["counter"]))
    more = len(found) > _MOST_LISTED or any(page["next"] for page in pages)
    found = found[:_MOST_LISTED]
    return {"counters": found, "next": found[-1]["counter"] if more and found else None}


def _sites(answers: list[Any]) -> dict[str, Any]:
    """A site is there once for each shard that has a counter of it."""
    if any("forgotten" in answer for answer in answers):
        return {"forgotten": sum(answer["forgotten"] for answer in answers)}
    return {"sites": sorted((site for answer in answers for site in answer["sites"]), key=lambda site: site["site"])}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _never() -> MutableMapping[str, Any]:
    raise RuntimeError("nobody reads the body of an answer")
