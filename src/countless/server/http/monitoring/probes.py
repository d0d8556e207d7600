"""Health probes, metrics and the OpenAPI document."""

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from countless.server.http.api.openapi import Operation, json
from countless.server.http.api.schemas import Live, Ready
from countless.server.http.monitoring.metrics import exposition
from countless.server.http.monitoring.process_metrics import process_metrics
from countless.server.http.server_view import ServerView


async def live(request: Request) -> Response:
    """The process responds; the response has its clock."""
    return json(Live(live=True, time=datetime.now(UTC).isoformat(timespec="milliseconds")))


async def ready(request: Request) -> Response:
    """False after a restart until sites have reported, while the state cannot be saved, and during shutdown.
    A site that is silent does not change this: whether a total can be trusted is the total's own state.
    """
    server: ServerView = request.app.state.server
    problems = ["learning after a restart"] if server.recovering else []
    problems += ["going down"] if server.draining else []
    problems += ["the state cannot be saved"] if server.failing else []
    return json(Ready(not problems, problems), 503 if problems else 200)


async def health(request: Request) -> Response:
    """The same as `/readyz`, under the name that some load balancers expect."""
    return await ready(request)


async def metrics(request: Request) -> Response:
    """Prometheus text, or OpenMetrics if the `Accept` header asks for it."""
    state = request.app.state
    page, content_type = await exposition(state.server, request.headers.get("accept", ""), process_metrics(state))
    return Response(page, headers={"content-type": content_type, "cache-control": "no-store"})


async def openapi(request: Request) -> Response:
    """This document."""
    return json(request.app.state.openapi)


PROBES = (
    Operation("GET", "/livez", None, live, Live),
    Operation("GET", "/readyz", None, ready, Ready, error_statuses=(503,)),
    Operation("GET", "/healthz", None, health, Ready, error_statuses=(503,)),
    Operation("GET", "/metrics", "operator", metrics, "text/plain"),
    Operation("GET", "/api/v1/openapi.json", None, openapi, "application/json"),
)
