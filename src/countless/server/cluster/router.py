"""The JSON API of a cluster member: it answers for every counter and budget, whichever member owns it.

A request for one counter or budget goes to the owner of its shard. A request for all of them, or for all sites, goes to
every shard, and the responses are merged. A watch is a sequence of polls of the counter's owner at the time, so it
continues when the counter moves to another member.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from countless.server.cluster.forwarding import ForwardedRequest, OwnerUnreachable, forward, respond_as_owner
from countless.server.cluster.member import ClusterMember
from countless.server.http import routes
from countless.server.http.answers.published import event_stream, parse_threshold, public_view
from countless.server.http.answers.sums import answer_changes, parts_of, summed
from countless.server.http.api.openapi import Handler, Operation, error, json
from countless.server.http.api.schemas import PublicAnswer
from countless.server.http.budgets.routes import BUDGET_OPERATIONS, create_budget, list_budgets
from countless.server.site_server import SiteServer
from countless.wire.keys import BUDGET, COUNTER, Key
from countless.wire.nats_subjects import shard_of

_MAX_BODY_BYTES = routes.MAX_BODY_BYTES + 1  # one more than a handler accepts: the owner rejects a longer body
_POLL_PATH = "/api/v1/poll/"
_UNREACHABLE = "no coordinator owns this shard at present; another one takes over within the lease"
_NO_LEASE = "this coordinator cannot use its broker at present, and has no lease: its log has the reason"


def _member(request: Request) -> ClusterMember:
    member: ClusterMember = request.app.state.member
    return member


async def _forwarded(request: Request) -> ForwardedRequest:
    grant = request.app.state.access.authenticate(request)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk[: _MAX_BODY_BYTES - len(body)]
        if len(body) == _MAX_BODY_BYTES:
            break
    headers = [(name, value) for name, value in request.headers.raw if name in (b"accept", b"content-type")]
    query = request.scope.get("query_string", b"")
    scopes, path = sorted(grant.scopes), request.scope["path"]
    return ForwardedRequest(request.method, path, query, headers, bytes(body), scopes, grant.site)


async def _ask(member: ClusterMember, shard: int, request: ForwardedRequest) -> Response:
    """The response of the shard's owner, this member or another. Raises OwnerUnreachable."""
    owned = member.shards.get(shard)
    if owned is None:
        return await forward(member.client, shard, request)
    return await respond_as_owner(owned.app, request, member.lease.valid)


# One counter or budget


def _forward_to(kind: str) -> Handler:
    """A handler for operations whose path has the name."""

    async def forward_by_name(request: Request) -> Response:
        member, forwarded = _member(request), await _forwarded(request)
        shard = shard_of(Key(kind, request.path_params["name"]), member.lease.shards)
        return await _forward(member, shard, forwarded)

    return forward_by_name


class _Named(msgspec.Struct):
    name: str


def _forward_new_to(kind: str) -> Handler:
    """A handler for operations whose body has the name."""

    async def forward_new(request: Request) -> Response:
        member, forwarded = _member(request), await _forwarded(request)
        try:
            name = msgspec.json.decode(forwarded.body, type=_Named).name
        except (msgspec.DecodeError, ValueError, RecursionError):
            name = ""  # any shard rejects it
        return await _forward(member, shard_of(Key(kind, name), member.lease.shards), forwarded)

    return forward_new


def _unreachable(member: ClusterMember) -> Response:
    return error(_UNREACHABLE if member.lease.valid() else _NO_LEASE, 503)


async def _forward(member: ClusterMember, shard: int, forwarded: ForwardedRequest) -> Response:
    try:
        return await _ask(member, shard, forwarded)
    except OwnerUnreachable:
        return _unreachable(member)


# All shards


async def _ask_all(request: Request, merge: Callable[[list[Any]], dict[str, Any]]) -> Response:
    member, forwarded = _member(request), await _forwarded(request)
    asks = [asyncio.ensure_future(_ask(member, shard, forwarded)) for shard in range(member.lease.shards)]
    try:
        responses = await asyncio.gather(*asks)
    except OwnerUnreachable:
        return _unreachable(member)
    finally:
        for ask in asks:  # those that still wait, if another has failed
            ask.cancel()
    failed = next((response for response in responses if response.status_code >= 400), None)
    if failed is not None:
        return failed
    return json(merge([msgspec.json.decode(response.body) for response in responses]))


def _merge_pages(items: str, name: str) -> Callable[[list[Any]], dict[str, Any]]:
    """One page of the items of all shards, by the name of each."""

    def merge(pages: list[Any]) -> dict[str, Any]:
        found = sorted((each for page in pages for each in page[items]), key=lambda each: str(each[name]))
        more = len(found) > routes.MAX_LISTED or any(page["next"] for page in pages)
        found = found[: routes.MAX_LISTED]  # the first names of all shards are among the first of each
        return {items: found, "next": found[-1][name] if more and found else None}

    return merge


async def _list_counters(request: Request) -> Response:
    return await _ask_all(request, _merge_pages("counters", "counter"))


async def _list_budgets(request: Request) -> Response:
    return await _ask_all(request, _merge_pages("budgets", "name"))


async def _list_sites(request: Request) -> Response:
    """A site is listed once for each shard that has a counter of it."""

    def merge(lists: list[Any]) -> dict[str, Any]:
        sites = [site | {"shard": shard} for shard, part in enumerate(lists) for site in part["sites"]]
        return {"sites": sorted(sites, key=lambda site: site["site"])}

    return await _ask_all(request, merge)


async def _forget_site(request: Request) -> Response:
    return await _ask_all(request, lambda parts: {"forgotten": sum(part["forgotten"] for part in parts)})


# Watching


async def _watch_counter(request: Request) -> Response:
    member, name = _member(request), request.path_params["name"]
    threshold = parse_threshold(request.query_params.get("over"))
    try:
        response = await poll(member, name, None)
    except OwnerUnreachable:
        return _unreachable(member)
    if response.status_code != 200:
        return response
    return event_stream(request, answers_after(member, name, answer_in(response)), threshold)


async def answers_after(member: ClusterMember, name: str, answer: PublicAnswer) -> AsyncIterator[PublicAnswer]:
    """This answer and those that follow it, until the counter is deleted or this member drains."""
    yield answer
    while not member.draining:
        latest = answer
        with suppress(OwnerUnreachable):
            response = await poll(member, name, answer)
            if response.status_code == 404:
                return
            if response.status_code == 200:
                latest = answer_in(response)
        if _version(latest) == _version(answer):
            await asyncio.sleep(member.surroundings.retry_s)
        else:
            answer = latest
            yield answer


async def poll(member: ClusterMember, name: str, seen: PublicAnswer | None) -> Response:
    wait = {"wait": member.surroundings.poll_s}
    query = urlencode(wait | {"seen": _version(seen)} if seen else wait).encode()
    request = ForwardedRequest("GET", _POLL_PATH + name, query, [], b"", ["read"], None)
    return await _ask(member, shard_of(Key(COUNTER, name), member.lease.shards), request)


def answer_in(response: Response) -> PublicAnswer:
    return msgspec.json.decode(response.body, type=PublicAnswer)


def _version(answer: PublicAnswer) -> str:
    return f"{answer.estimate!r} {answer.lower!r} {answer.upper!r} {answer.state}"


async def _poll_counter(request: Request) -> Response:
    """At the owner: the answer as soon as it differs from `seen`, or the same answer after `wait` seconds."""
    server: SiteServer = request.app.state.server
    name = request.path_params["name"]
    answer = summed(name, [public_view(part) for part in parts_of(server, name)])
    with suppress(TimeoutError):
        async with asyncio.timeout(float(request.query_params["wait"])):
            async for answer in answer_changes(server, name):
                if _version(answer) != request.query_params.get("seen"):
                    break
    return json(answer)


_HANDLERS: dict[Handler, Handler] = {
    routes.list_counters: _list_counters,
    routes.create_counter: _forward_new_to(COUNTER),
    routes.watch_counter: _watch_counter,
    routes.list_sites: _list_sites,
    routes.forget_site: _forget_site,
    routes.forget_silent_sites: _forget_site,
    list_budgets: _list_budgets,
    create_budget: _forward_new_to(BUDGET),
}
_forward_counter, _forward_budget = _forward_to(COUNTER), _forward_to(BUDGET)
MEMBER_OPERATIONS: Sequence[Operation] = [
    *(replace(each, handler=_HANDLERS.get(each.handler, _forward_counter)) for each in routes.OPERATIONS),
    *(replace(each, handler=_HANDLERS.get(each.handler, _forward_budget)) for each in BUDGET_OPERATIONS),
]
POLL = Operation("GET", f"{_POLL_PATH}{{name}}", "read", _poll_counter, PublicAnswer)
SHARD_OPERATIONS: Sequence[Operation] = [
    *(each for each in routes.OPERATIONS if each.handler is not routes.watch_counter),
    *BUDGET_OPERATIONS,
    POLL,
]
