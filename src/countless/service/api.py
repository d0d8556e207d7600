"""The JSON API under `/api/v1`. Handlers only: what they do is the host's business, who may call them is the access's.

The read scope gets estimate, lower, upper, state and the time of reading, and nothing finer: whatever tells when or
how often sites report would let a reader steer the error (SPEC section 8).
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from countless.core.answer import Answer
from countless.errors import CountlessError, InvalidParameter, UnknownName
from countless.service.counter import Counter
from countless.service.host import Host

Handler = Callable[[Request], Awaitable[Response]]
_MOST_BODY = 1 << 16
_MOST_LISTED = 1000


class Wishes(msgspec.Struct, forbid_unknown_fields=True):
    """What a body may ask for."""

    name: str | None = None
    alpha: float | None = None
    delta: float | None = None
    scheme: str | None = None
    adversary: str | None = None
    label_cap: int | None = None

    def config(self) -> dict[str, Any]:
        """Only what was said."""
        fields = ("alpha", "delta", "scheme", "adversary", "label_cap")
        return {name: getattr(self, name) for name in fields if getattr(self, name) is not None}


def json(content: object, status: int = 200) -> Response:
    """A JSON response that no cache keeps."""
    headers = {"cache-control": "no-store"}
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def error(message: str, status: int) -> Response:
    """What went wrong, in one shape everywhere."""
    return json({"error": message}, status)


def needs(scope: str) -> Callable[[Handler], Handler]:
    """Only callers with this scope; and errors that the caller can mend as JSON."""

    def guard(handler: Handler) -> Handler:
        @wraps(handler)
        async def guarded(request: Request) -> Response:
            if not request.app.state.access.of(request).allows(scope):
                request.app.state.host.dropped["not allowed"] += 1
                return error(f"a token of scope {scope} is needed", 401)
            try:
                return await handler(request)
            except UnknownName as unknown:
                return error(f"there is no {unknown.parameter} {unknown.value!r}", 404)
            except CountlessError as problem:
                return error(str(problem), 400)

        return guarded

    return guard


def public_view(name: str, answer: Answer) -> dict[str, Any]:
    """What the public may know. `as_of` is the time of reading, never that of a report."""
    return {
        "counter": name,
        "estimate": answer.estimate,
        "lower": answer.lower,
        "upper": answer.upper,
        "state": answer.state,
        "as_of": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def operator_view(counter: Counter) -> dict[str, Any]:
    """What operators may know beside that."""
    return public_view(counter.name, counter.visible) | counter.operator_view()


def _host(request: Request) -> Host:
    host: Host = request.app.state.host
    return host


async def _wishes(request: Request) -> Wishes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY:
            raise InvalidParameter("body", f"{len(body)} bytes", f"at most {_MOST_BODY} bytes")
    try:
        return msgspec.json.decode(bytes(body) or b"{}", type=Wishes)
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        raise InvalidParameter("body", bytes(body[:80]), f"a JSON object of the documented form ({problem})") from None


@needs("read")
async def list_counters(request: Request) -> Response:
    """All counters in the order of their names, a page at a time."""
    after = request.query_params.get("after", "")
    names = sorted(name for name in _host(request).counters if name > after)
    page = [public_view(name, _host(request).counters[name].visible) for name in names[:_MOST_LISTED]]
    return json({"counters": page, "next": names[_MOST_LISTED - 1] if len(names) > _MOST_LISTED else None})


@needs("operator")
async def create_counter(request: Request) -> Response:
    """A counter with rules of its own, before any site counts it."""
    wishes = await _wishes(request)
    if wishes.name is None:
        return error("name is missing", 400)
    host = _host(request)
    if wishes.name in host.counters:
        return error(f"there is a counter {wishes.name!r} already", 409)
    host.create(wishes.name, replace(host.settings.defaults, **wishes.config()))
    await host.settled()
    return json(operator_view(host.counter(wishes.name)), 201)


@needs("read")
async def read_counter(request: Request) -> Response:
    """The answer."""
    counter = _host(request).counter(request.path_params["name"])
    return json(public_view(counter.name, counter.visible))


@needs("operator")
async def inspect_counter(request: Request) -> Response:
    """The answer, and what is behind it."""
    return json(operator_view(_host(request).counter(request.path_params["name"])))


@needs("operator")
async def configure_counter(request: Request) -> Response:
    """Other rules for a counter that exists."""
    host, name, wishes = _host(request), request.path_params["name"], await _wishes(request)
    host.configure(name, replace(host.counter(name).config, **wishes.config()))
    await host.settled()
    return json(operator_view(host.counter(name)))


@needs("operator")
async def delete_counter(request: Request) -> Response:
    """Forget a counter."""
    _host(request).delete(request.path_params["name"])
    await _host(request).settled()
    return Response(status_code=204)


@needs("read")
async def watch_counter(request: Request) -> Response:
    """Server-sent events: the answer now, and whenever the public answer changes."""
    counter = _host(request).counter(request.path_params["name"])
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_events(_host(request), counter), 200, headers, "text/event-stream")


async def _events(host: Host, counter: Counter) -> AsyncIterator[bytes]:
    told: tuple[float, str] | None = None
    while host.counters.get(counter.name) is not None and not host.draining:
        counter = host.counters[counter.name]
        news, answer = counter.news, counter.visible
        if (answer.estimate, answer.state) != told:
            told = (answer.estimate, answer.state)
            yield b"event: answer\ndata: " + msgspec.json.encode(public_view(counter.name, answer)) + b"\n\n"
        await news.wait()


@needs("operator")
async def list_sites(request: Request) -> Response:
    """Every life of every site."""
    host, now = _host(request), _host(request).now()
    lives = [
        {
            "site": str(life.address.site),
            "state": life.state,
            "counters": len(life.counters),
            "seconds_since_heard": round(now - life.last_heard(), 3),
        }
        for life in host.lives
    ]
    return json({"sites": sorted(lives, key=lambda life: str(life["site"]))})


@needs("operator")
async def forget_site(request: Request) -> Response:
    """Give up the lives of a site that are not connected; what is known of them stays in the totals."""
    forgotten = _host(request).forget(request.path_params["site"])
    await _host(request).settled()
    return json({"forgotten": forgotten})


ROUTES = [
    Route("/api/v1/counters", list_counters, methods=["GET"]),
    Route("/api/v1/counters", create_counter, methods=["POST"]),
    Route("/api/v1/counters/{name:path}", read_counter, methods=["GET"]),
    Route("/api/v1/counters/{name:path}", configure_counter, methods=["PATCH"]),
    Route("/api/v1/counters/{name:path}", delete_counter, methods=["DELETE"]),
    Route("/api/v1/operator/{name:path}", inspect_counter, methods=["GET"]),
    Route("/api/v1/watch/{name:path}", watch_counter, methods=["GET"]),
    Route("/api/v1/sites", list_sites, methods=["GET"]),
    Route("/api/v1/sites/{site:path}", forget_site, methods=["DELETE"]),
]
