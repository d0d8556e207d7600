"""The agent's HTTP side: `POST /add`, budgets, the probes and the metrics. The same event loop reads the datagrams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from countless.agent.bodies import Refused, json, read_body
from countless.agent.hosts import CheckedHost
from countless.agent.intake import Intake
from countless.agent.metrics import exposition
from countless.agent.parts import Agent
from countless.agent.statsd import MAX_COUNT, Fault
from countless.client.counter import Counter
from countless.errors import InvalidParameter, UnknownBudget
from countless.wire.keys import is_label

_PROBLEMS = {
    Fault.NAME: "must be printable, at most 500 characters with all labels and its window, and not end like @hour",
    Fault.TOO_MANY: "would be one counter too many for this agent",
}


class Add(Struct, forbid_unknown_fields=True):
    counter: str
    n: Annotated[int, Meta(ge=0, le=MAX_COUNT)] = 1
    labels: dict[str, str] = {}


_decode = msgspec.json.Decoder(Add | list[Add]).decode


def build_app(agent: Agent) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        for receiver in agent.receivers:
            loop.add_reader(receiver.socket, receiver.read, agent.intake)
        try:
            yield
        finally:
            for receiver in agent.receivers:
                loop.remove_reader(receiver.socket)

    budgets = agent.budgets
    routes = [
        Route("/add", add, methods=["POST"]),
        Route("/api/v1/budgets/{name:path}/take", budgets.take, methods=["POST"]),
        Route("/api/v1/budgets/{name:path}/reserve", budgets.reserve, methods=["POST"]),
        Route("/api/v1/budgets/{name:path}/settle", budgets.settle, methods=["POST"]),
        Route("/metrics", metrics),
        Route("/livez", live),
        Route("/readyz", ready),
        Route("/healthz", ready),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(CheckedHost, names=agent.hosts)],
        exception_handlers=dict.fromkeys((Refused, UnknownBudget, InvalidParameter), refuse),
    )
    app.state.agent = agent
    return app


async def add(request: Request) -> Response:
    """Count one increment or a list of them. If one is wrong, none is counted."""
    agent: Agent = request.app.state.agent
    body = await read_body(request, _decode, "increment and no list of increments")
    found = [(_series(agent.intake, each, place), each.n) for each, place in _places(body)]
    for series, n in found:
        series.add(n)
    agent.http_adds += len(found)
    return json({"added": sum(n for _, n in found)})


def _places(body: Add | list[Add]) -> list[tuple[Add, str]]:
    if isinstance(body, Add):
        return [(body, "$")]
    return [(each, f"$[{place}]") for place, each in enumerate(body)]


async def refuse(request: Request, problem: Exception) -> Response:
    status = problem.status if isinstance(problem, Refused) else 404 if isinstance(problem, UnknownBudget) else 400
    return json({"error": str(problem)}, status)


def _series(intake: Intake, each: Add, place: str) -> Counter:
    for name in each.labels:
        if not is_label(name):
            raise Refused(f"label {name[:50]!r} must be letters, digits, '_', '.', '/' and '-' - at `{place}.labels`")
    found = intake.find(each.counter, tuple(sorted(each.labels.items())))
    if isinstance(found, Fault):
        raise Refused(f"counter {each.counter[:50]!r} {_PROBLEMS[found]} - at `{place}.counter`")
    return found


async def live(request: Request) -> Response:
    return json({"live": True})


async def ready(request: Request) -> Response:
    """The agent counts without a coordinator too, so it is ready either way; `connected` is for people."""
    client = request.app.state.agent.client
    return json({"ready": True, "connected": client.connected, "trouble": client.last_error})


async def metrics(request: Request) -> Response:
    page, content_type = exposition(request.app.state.agent, request.headers.get("accept", ""))
    return Response(page, headers={"content-type": content_type})
