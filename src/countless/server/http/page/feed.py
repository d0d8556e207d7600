"""`/page/feed`: what the page shows, as server-sent events. One stream for each open page.

The caller's role decides which view it gets : `public` with the read scope, `operator` with that scope.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic, time

from starlette.requests import Request
from starlette.responses import Response

from countless import __version__
from countless.errors import InvalidParameter
from countless.server.connection import RefusedSite
from countless.server.http.access.auth import Access, Grant, peer_of, until_revoked
from countless.server.http.answers.published import CountedStream, encode_event
from countless.server.http.api.openapi import error
from countless.server.http.page.budget_views import BudgetListView, BudgetView, OperatorBudgetView
from countless.server.http.page.counter_view import CounterView, OperatorCounterView, View
from countless.server.http.page.list_view import ListView, OperatorListView
from countless.server.http.server_view import ServerView
from countless.server.sessions.shares import Shares

MAX_STREAMS = 500
KEEPALIVE_S = 4.0  # the page reports a lost connection after three of these without an event
MIN_INTERVAL_S = 0.2  # people see faster changes only as flicker
IDLE_SHARE = 20  # a view that takes a millisecond to update is updated every 20 ms at most: 5 % of a core
PAGES_SHARE = 5  # and every 5 ms for each page that is open: all together, 20 % of a core
MAX_QUERY_CHARS = 500
MAX_REFUSED = 20  # shown


async def feed(request: Request) -> Response:
    server: ServerView = request.app.state.server
    access: Access = request.app.state.access
    grant = access.authenticate(request)
    role = role_of(grant)
    if role is None:
        server.dropped["not allowed"] += 1
        return error("a token of scope read or operator is needed", 401)
    pages: Shares[object] = request.app.state.pages
    peer = peer_of(request, grant)
    if len(pages) >= MAX_STREAMS or pages.is_full(peer):
        server.dropped["too many pages"] += 1
        return error(f"too many pages are open (at most {MAX_STREAMS}, and {pages.most} for one token)", 503)
    try:
        view = _view(request, role)
    except InvalidParameter as problem:
        return error(str(problem), 400)
    response = CountedStream(_stream(request, server, view, role), pages, peer)
    response.headers["cross-origin-resource-policy"] = "same-origin"
    return until_revoked(response, access, grant)


def role_of(grant: Grant) -> str | None:
    """`operator`, `public`, or None if the caller may see nothing."""
    if grant.allows("operator"):
        return "operator"
    return "public" if grant.allows("read") else None


def _view(request: Request, role: str) -> View:
    server, recorder, query = request.app.state.server, request.app.state.recorder, request.query_params
    counter, budget = query.get("counter"), query.get("budget")
    find, sort = query.get("find", ""), query.get("sort", "")
    for name, value in (("find", find), ("counter", counter or ""), ("budget", budget or "")):
        if len(value) > MAX_QUERY_CHARS:
            raise InvalidParameter(name, f"{len(value)} characters", f"at most {MAX_QUERY_CHARS} characters")
    start = query.get("start", "0")
    if not (start.isascii() and start.isdigit() and len(start) < 10):
        raise InvalidParameter("start", start, "an integer from 0 to 10^9 - 1")
    if budget is not None:
        return (OperatorBudgetView if role == "operator" else BudgetView)(server, budget)
    if query.get("show") == "budgets":
        return BudgetListView(server, find, sort, int(start))
    if counter is None:
        kind = OperatorListView if role == "operator" else ListView
        return kind(server, recorder, find, sort, int(start))
    if role == "operator":
        return OperatorCounterView(server, recorder, counter, query.get("bars", ""), find, sort, int(start))
    return CounterView(server, recorder, counter, query.get("bars", ""))


async def _stream(request: Request, server: ServerView, view: View, role: str) -> AsyncIterator[bytes]:
    started = request.app.state.recorder.started
    hello = {"role": role, "now": time(), "keepalive_s": KEEPALIVE_S, "version": __version__, "started": started}
    yield encode_event("hello", hello)
    refused: list[RefusedSite] = []
    last_sent = monotonic()
    while not server.draining:
        began = monotonic()
        events = b"".join(encode_event(*event) for event in view.changes())
        if role == "operator" and refused != (refused := server.refused.recent()):
            events += encode_event("refused", {"number": len(refused), "rows": refused[:MAX_REFUSED]})
        spent = monotonic() - began
        if events:
            yield events
            last_sent = monotonic()
        elif monotonic() - last_sent >= KEEPALIVE_S:
            yield encode_event("keepalive", {"now": time()})
            last_sent = monotonic()
        await _pause(server, view, update_interval_s(spent, len(request.app.state.pages)))


def update_interval_s(spent_s: float, pages: int) -> float:
    """
    >>> update_interval_s(0.02, pages=1), update_interval_s(0.02, pages=100), update_interval_s(0.0001, pages=100)
    (0.4, 10.0, 0.2)
    """
    return max(MIN_INTERVAL_S, max(IDLE_SHARE, PAGES_SHARE * pages) * spent_s)


async def _pause(server: ServerView, view: View, least: float) -> None:
    """At least so many seconds; then until something may have changed, or for a second."""
    end = monotonic() + least
    while not server.draining and (left := end - monotonic()) > 0:
        await asyncio.sleep(min(left, 0.5))
    with suppress(TimeoutError):
        await asyncio.wait_for(view.wait(), timeout=1.0)
