"""ASGI applications, assembled from routes. Which server answers behind them is the caller's choice.

| application | routes | `app.state.server` |
|---|---|---|
| `coordinator_app` | everything | a `SiteServer` |
| `member_app` | everything; sites are refused and the API is given | a `ServerView` of its own shards |
| `shard_app` | the API, as it is given | a `SiteServer` |

Handlers find their collaborators in `app.state`: `server`, `access`, `recorder`, `watches` and
`pages` that are open, and for operators `audit`, `loop_lag` and a `problem` that prevented the start.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Lifespan
from starlette.websockets import WebSocket

from countless.errors import CountlessError
from countless.server.audit import AuditLog
from countless.server.http.access.auth import Authenticator
from countless.server.http.access.middleware import AuditedRequests, ForwardedAddress
from countless.server.http.api.openapi import Operation, error, openapi, routes_of
from countless.server.http.budgets.routes import BUDGET_OPERATIONS
from countless.server.http.history.history import Recorder
from countless.server.http.monitoring import PROBES
from countless.server.http.page import assets
from countless.server.http.page.feed import MAX_STREAMS
from countless.server.http.routes import OPERATIONS
from countless.server.http.server_view import ServerView
from countless.server.http.sockets.websocket import site_socket
from countless.server.sessions.shares import Shares
from countless.server.site_server import SiteServer
from countless.server.timings import Timings

_OPERATIONS = (*OPERATIONS, *BUDGET_OPERATIONS, *PROBES)
_MIDDLEWARE = (Middleware(ForwardedAddress), Middleware(AuditedRequests))


def coordinator_app(lifespan: Lifespan[Starlette]) -> Starlette:
    """All routes of a single coordinator. The lifespan must call `set_state` before the first request."""
    routes = [*routes_of(_OPERATIONS), *assets.ROUTES, WebSocketRoute("/api/v1/site", site_socket)]
    return _application(routes, lifespan, _MIDDLEWARE)


def member_app(operations: Iterable[Operation], lifespan: Lifespan[Starlette]) -> Starlette:
    """A cluster member: page, probes, metrics, and an API that reaches all shards. The lifespan calls `set_state`."""
    refusal = WebSocketRoute("/api/v1/site", _refuse_site)
    routes = [*routes_of((*operations, *PROBES)), *assets.ROUTES, refusal]
    return _application(routes, lifespan, _MIDDLEWARE)


def shard_app(
    server: SiteServer, access: Authenticator, operations: Iterable[Operation], recorder: Recorder
) -> Starlette:
    app = _application(routes_of(operations))
    app.state.server, app.state.access, app.state.recorder = server, access, recorder
    return app


def set_state(
    app: Starlette, server: ServerView, access: Authenticator, recorder: Recorder, audit: AuditLog | None = None
) -> None:
    app.state.server, app.state.access = server, access
    app.state.recorder = recorder
    app.state.audit = audit or app.state.audit
    server.refused.listener = app.state.audit.refused
    app.state.watches = Shares[object](server.settings.max_watches, server.settings.max_share)
    app.state.pages = Shares[object](MAX_STREAMS, server.settings.max_share)


def _application(
    routes: Sequence[BaseRoute],
    lifespan: Lifespan[Starlette] | None = None,
    middleware: Sequence[Middleware] = (),
) -> Starlette:
    handlers = {HTTPException: _http_error, Exception: _internal_error}
    starting = lifespan and _with_problem(lifespan)
    app = Starlette(routes=routes, middleware=middleware, lifespan=starting, exception_handlers=handlers)
    app.state.problem = None
    app.state.openapi = openapi(_OPERATIONS)
    app.state.audit, app.state.loop_lag = AuditLog(None), Timings()
    return app


def _with_problem(lifespan: Lifespan[Starlette]) -> Lifespan[Starlette]:
    """Keep a problem that the operator can solve in `app.state.problem`: Starlette passes on its traceback only."""

    @asynccontextmanager
    async def starting(app: Starlette) -> AsyncIterator[None]:
        try:
            async with lifespan(app):
                yield
        except CountlessError as error:
            app.state.problem = error
            raise

    return starting


async def _refuse_site(websocket: WebSocket) -> None:
    address = websocket.client.host if websocket.client else "unknown"
    websocket.app.state.server.refused.add(address, "sites of a cluster connect through the broker")
    await websocket.close(1008, "sites connect through the broker")


async def _http_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)  # noqa: S101 - for the type checker: starlette chooses by class
    response = error(problem.detail, problem.status_code)
    response.headers.update(problem.headers or {})
    return response


async def _internal_error(request: Request, problem: Exception) -> Response:
    return error("internal error", 500)
