"""The ASGI application: one port for sites, readers, operators and probes."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from signal import SIGTERM, raise_signal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import Lifespan

from countless.errors import InvalidParameter
from countless.server.http import assets as page
from countless.server.http.auth import Access
from countless.server.http.history import Recorder
from countless.server.http.metrics import exposition
from countless.server.http.openapi import Operation, document, error, json, routes_of
from countless.server.http.routes import OPERATIONS
from countless.server.http.schemas import Live, Ready
from countless.server.http.websocket import site_socket
from countless.server.sessions.site_server import Host
from countless.server.settings import Settings
from countless.server.storage.sqlite_store import Store

log = logging.getLogger("countless.app")

STATE_FILE = "countless.sqlite"
_TIDY = 10.0  # seconds
_TICK = 1.0  # at most, in seconds: looking at 10,000 sites takes some milliseconds


def application(lifespan: Lifespan[Starlette] | None = None) -> Starlette:
    """All routes of a coordinator."""
    operations = (*OPERATIONS, *PROBES)
    routes = [*routes_of(operations), *page.ROUTES, WebSocketRoute("/api/v1/site", site_socket)]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _refuse, Exception: _fail})
    app.state.openapi = document(operations)
    return app


def build_app(settings: Settings) -> Starlette:
    """The application of one coordinator; its state lives in the settings' directory, or with its broker."""
    if settings.nats:
        require_nats()
        from countless.server.cluster.app import build_nats_app

        return build_nats_app(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        path = Path(settings.state_dir) / STATE_FILE
        store = Store(path)
        # Tokens are read beside the host: a caller must not wait for a transaction that is being written.
        tokens = Store(path)
        host = Host(store, settings)
        app.state.host, app.state.access = host, Access(tokens)
        app.state.recorder, app.state.feeds = Recorder(host), 0
        tasks = [asyncio.create_task(host.run()), asyncio.create_task(_tick(host))]
        for task in tasks:
            task.add_done_callback(partial(_fail_fast, host))
        tasks.append(asyncio.create_task(app.state.recorder.run()))
        tasks.append(asyncio.create_task(_tidy(tokens)))
        try:
            yield
        finally:
            host.drain()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await host.stop()
            tokens.close()
            store.close()

    return application(lifespan)


def require_nats() -> None:
    """What talks to a broker is installed."""
    if find_spec("nats") is None:
        raise InvalidParameter("nats", "an address", "used with pip install 'countless[nats]'")


async def _refuse(request: Request, problem: Exception) -> Response:
    """What no operation of ours answers: another path, another method."""
    assert isinstance(problem, HTTPException)  # noqa: S101 - for the type checker: starlette looks it up by its class
    response = error(problem.detail, problem.status_code)
    response.headers.update(problem.headers or {})
    return response


async def _fail(request: Request, problem: Exception) -> Response:
    return error("internal error", 500)


def _fail_fast(host: Host, task: "asyncio.Task[None]") -> None:
    """A coordinator whose loop has died must not look alive: it ends, and the next one goes on from the disk."""
    if not task.cancelled() and task.exception() is not None:
        host.fail(f"failed: {task.exception()}")
        log.critical("the host has failed: please report this", exc_info=task.exception())
        raise_signal(SIGTERM)


async def _tick(host: Host) -> None:
    while True:
        await asyncio.sleep(min(_TICK, host.settings.silent_after / 4))
        for _ in host.ticking():
            await asyncio.sleep(0)


async def _tidy(store: Store) -> None:
    while True:
        await asyncio.sleep(_TIDY)
        try:
            await asyncio.to_thread(store.tidy)
        except sqlite3.Error:  # a full disk: whoever saves will say so
            log.info("the log of the state file could not be tidied up", exc_info=True)


async def live(request: Request) -> Response:
    """The process answers, and this is its clock."""
    return json(Live(live=True, time=datetime.now(UTC).isoformat(timespec="milliseconds")))


async def ready(request: Request) -> Response:
    """Whether totals can be read with confidence: not while learning after a restart, not while going down."""
    host: Host = request.app.state.host
    learning = any(counter.waking for counter in host.counters.values())
    problems = ["learning after a restart"] if learning else []
    problems += ["going down"] if host.draining else []
    problems += ["the state cannot be saved"] if host.failing else []
    return json(Ready(not problems, problems), 503 if problems else 200)


async def health(request: Request) -> Response:
    """The same as `/readyz`, under the name that others look for."""
    return await ready(request)


async def metrics(request: Request) -> Response:
    """Prometheus text, or OpenMetrics for whoever accepts it."""
    page, content_type = exposition(request.app.state.host, request.headers.get("accept", ""))
    return Response(page, headers={"content-type": content_type, "cache-control": "no-store"})


async def openapi(request: Request) -> Response:
    """This document."""
    return json(request.app.state.openapi)


PROBES = (
    Operation("GET", "/livez", None, live, Live),
    Operation("GET", "/readyz", None, ready, Ready, refusals=(503,)),
    Operation("GET", "/healthz", None, health, Ready, refusals=(503,)),
    Operation("GET", "/metrics", "operator", metrics, "text/plain"),
    Operation("GET", "/api/v1/openapi.json", None, openapi, "application/json"),
)
