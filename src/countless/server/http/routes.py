"""The JSON API under `/api/v1`. Handlers only: what they do is the host's business, who may call them is the access's.

The read scope gets estimate, lower, upper, state and the time of reading, and nothing finer: whatever tells when or
how often sites report would let a reader steer the error (SPEC section 8).
"""

from dataclasses import replace
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from countless.errors import InvalidParameter
from countless.server.http.answers import answer_changes, event_stream, parse_threshold, public_view
from countless.server.http.openapi import Operation, error, json
from countless.server.http.schemas import (
    AnswerPage,
    Forgotten,
    NewCounter,
    OperatorAnswer,
    PublicAnswer,
    Rules,
    SiteList,
    SiteStatus,
)
from countless.server.sessions.counter import Counter
from countless.server.sessions.site_server import SiteServer

_MOST_BODY = 1 << 16
_MOST_LISTED = 1000
_Body = TypeVar("_Body", bound=Rules)


def operator_view(counter: Counter) -> OperatorAnswer:
    """What operators may know beside that."""
    public = msgspec.structs.asdict(public_view(counter.name, counter.published_answer))
    return msgspec.convert(public | counter.operator_view(), OperatorAnswer)


def _host(request: Request) -> SiteServer:
    host: SiteServer = request.app.state.server
    return host


async def _body(request: Request, shape: type[_Body]) -> _Body:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY:
            raise InvalidParameter("body", f"{len(body)} bytes", f"at most {_MOST_BODY} bytes")
    try:
        return msgspec.json.decode(bytes(body) or b"{}", type=shape)
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        raise InvalidParameter("body", bytes(body[:80]), f"a JSON object of the documented form ({problem})") from None


async def list_counters(request: Request) -> Response:
    """All counters in the order of their names, a page at a time."""
    after = request.query_params.get("after", "")
    names = sorted(name for name in _host(request).counters if name > after)
    page = [public_view(name, _host(request).counters[name].published_answer) for name in names[:_MOST_LISTED]]
    return json(AnswerPage(page, names[_MOST_LISTED - 1] if len(names) > _MOST_LISTED else None))


async def create_counter(request: Request) -> Response:
    """A counter with rules of its own, before any site counts it."""
    wish, host = await _body(request, NewCounter), _host(request)
    if wish.name in host.counters:
        return error(f"there is a counter {wish.name!r} already", 409)
    host.create(wish.name, replace(host.settings.defaults, **wish.chosen()))
    await host.flush()
    return json(operator_view(host.counter(wish.name)), 201)


async def read_counter(request: Request) -> Response:
    """The answer."""
    counter = _host(request).counter(request.path_params["name"])
    return json(public_view(counter.name, counter.published_answer))


async def inspect_counter(request: Request) -> Response:
    """The answer, and what is behind it."""
    return json(operator_view(_host(request).counter(request.path_params["name"])))


async def configure_counter(request: Request) -> Response:
    """Other rules for a counter that exists."""
    host, name, wish = _host(request), request.path_params["name"], await _body(request, Rules)
    host.configure(name, replace(host.counter(name).config, **wish.chosen()))
    await host.flush()
    return json(operator_view(host.counter(name)))


async def delete_counter(request: Request) -> Response:
    """Forget a counter."""
    _host(request).delete(request.path_params["name"])
    await _host(request).flush()
    return Response(status_code=204)


async def watch_counter(request: Request) -> Response:
    """Server-sent events: the answer now, and whenever the public answer changes.

    With `over`, an event `possibly` when the total may be over this number, and one `certainly` when it is.
    """
    server, counter = _host(request), _host(request).counter(request.path_params["name"])
    return event_stream(answer_changes(server, counter.name), parse_threshold(request.query_params.get("over")))


async def list_sites(request: Request) -> Response:
    """Every life of every site."""
    host, now = _host(request), _host(request).now()
    lives = [
        SiteStatus(str(life.site_id.site), life.state, len(life.memberships), max(0.0, round(now - life.last_seen, 3)))
        for life in host.sessions
    ]
    return json(SiteList(sorted(lives, key=lambda life: life.site)))


async def forget_site(request: Request) -> Response:
    """Give up the lives of a site that are not connected; what is known of them stays in the totals."""
    forgotten = _host(request).drop_site(request.path_params["site"])
    await _host(request).flush()
    return json(Forgotten(forgotten))


_COUNTERS, _COUNTER = "/api/v1/counters", "/api/v1/counters/{name}"
_NUMBER = {"type": "integer", "minimum": 0}

OPERATIONS = (
    Operation("GET", _COUNTERS, "read", list_counters, AnswerPage, query={"after": {"type": "string"}}),
    Operation(
        "POST", _COUNTERS, "operator", create_counter, OperatorAnswer, 201, body=NewCounter, error_statuses=(400, 409)
    ),
    Operation("GET", _COUNTER, "read", read_counter, PublicAnswer, error_statuses=(404,)),
    Operation("PATCH", _COUNTER, "operator", configure_counter, OperatorAnswer, body=Rules, error_statuses=(400, 404)),
    Operation("DELETE", _COUNTER, "operator", delete_counter, None, 204, error_statuses=(404,)),
    Operation("GET", "/api/v1/operator/{name}", "operator", inspect_counter, OperatorAnswer, error_statuses=(404,)),
    Operation(
        *("GET", "/api/v1/watch/{name}", "read", watch_counter, "text/event-stream"),
        query={"over": _NUMBER},
        error_statuses=(400, 404),
    ),
    Operation("GET", "/api/v1/sites", "operator", list_sites, SiteList),
    Operation("DELETE", "/api/v1/sites/{site}", "operator", forget_site, Forgotten),
)
