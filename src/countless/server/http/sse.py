"""`/page/feed`: what the page shows, as server-sent events. One stream for each open page, whatever it looks at.

Two faces (SPEC section 8). A reader's stream has answers: estimate, lower, upper, state, and when they changed in
public. An operator's stream has more. The two are different classes, so that nothing has to be left out by care.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic, time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from countless.errors import InvalidParameter
from countless.server.http.auth import Authenticator
from countless.server.http.server_view import ServerView
from countless.server.http.views import CounterView, ListView, OperatorCounterView, OperatorListView, View

MOST_FEEDS = 500  # open pages; each costs at most a twentieth of a core, and usually next to nothing
BEAT = 4.0  # seconds: a page that hears nothing for three of these says that it is stale
_GAP = 0.2  # seconds between two looks: faster than this a person sees only flicker
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no", "cross-origin-resource-policy": "same-origin"}
_MOST_QUERY = 500  # characters


async def feed(request: Request) -> Response:
    """The stream of one page: all counters, or one of them."""
    host: ServerView = request.app.state.server
    face = face_of(request)
    if face is None:
        host.dropped["not allowed"] += 1
        return _refusal("a token of scope read or operator is needed", 401)
    if request.app.state.open_streams >= MOST_FEEDS:
        return _refusal(f"{MOST_FEEDS} pages are open already", 503)
    try:
        view = _view(request, face)
    except InvalidParameter as problem:
        return _refusal(str(problem), 400)
    return StreamingResponse(_stream(request, host, view, face), 200, _HEADERS, "text/event-stream")


def face_of(request: Request) -> str | None:
    """What this caller may see: `operator`, `public`, or nothing at all."""
    access: Authenticator = request.app.state.access
    grant = access.authenticate(request)
    if grant.allows("operator"):
        return "operator"
    return "public" if grant.allows("read") else None


def _view(request: Request, face: str) -> View:
    host, recorder, query = request.app.state.server, request.app.state.recorder, request.query_params
    counter, find, sort = query.get("counter"), query.get("find", ""), query.get("sort", "")
    for name, value in (("find", find), ("counter", counter or "")):
        if len(value) > _MOST_QUERY:
            raise InvalidParameter(name, f"{len(value)} characters", f"at most {_MOST_QUERY} characters")
    start = query.get("start", "0")
    if not (start.isascii() and start.isdigit() and len(start) < 10):
        raise InvalidParameter("start", start, "a whole number below 10^9")
    if counter is None:
        kind = OperatorListView if face == "operator" else ListView
        return kind(host, recorder, find, sort, int(start))
    if face == "operator":
        return OperatorCounterView(host, recorder, counter, find, sort, int(start))
    return CounterView(host, recorder, counter)


async def _stream(request: Request, host: ServerView, view: View, face: str) -> AsyncIterator[bytes]:
    request.app.state.open_streams += 1
    try:
        yield encode("hello", {"face": face, "now": time(), "beat": BEAT})
        said = monotonic()
        while not host.draining:
            began = monotonic()
            events = b"".join(encode(*event) for event in view.look())
            spent = monotonic() - began
            if events:
                yield events
                said = monotonic()
            elif monotonic() - said >= BEAT:
                if face_of(request) != face:  # the token was revoked
                    return
                yield encode("beat", {"now": time()})
                said = monotonic()
            await _pause(host, view, 20 * spent)
    finally:
        request.app.state.open_streams -= 1


async def _pause(host: ServerView, view: View, least: float) -> None:
    """Until there may be something new; and however much there is to look at, most of the time is left to others."""
    end = monotonic() + max(_GAP, least)
    while not host.draining and (left := end - monotonic()) > 0:
        await asyncio.sleep(min(left, 0.5))
    with suppress(TimeoutError):
        await asyncio.wait_for(view.news(), timeout=1.0)


def encode(event: str, data: dict[str, Any]) -> bytes:
    """One event. JSON has no line breaks of its own."""
    return b"event: " + event.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


def _refusal(message: str, status: int) -> Response:
    body = msgspec.json.encode({"error": message})
    return Response(body, status, {"cache-control": "no-store"}, "application/json")
