"""The agent's HTTP side: `POST /add`, the probes and the metrics. The same event loop reads the datagrams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from countless.agent.intake import Intake
from countless.agent.metrics import exposition
from countless.agent.parts import Agent
from countless.agent.statsd import MAX_COUNT, Reason
from countless.client.counter import Counter

MAX_BODY_BYTES = 1 << 18  # about five thousand adds: the loop reads no datagrams for the milliseconds they take
_PROBLEMS = {
    Reason.NAME: "must be printable, and at most 500 characters with all labels",
    Reason.TOO_MANY: "would be one counter too many for this agent",
}


class Add(Struct, forbid_unknown_fields=True):
    counter: str
    n: Annotated[int, Meta(ge=0, le=MAX_COUNT)] = 1
    labels: dict[str, str] = {}


class BadBody(Exception):
    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


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

    routes = [
        Route("/add", add, methods=["POST"]),
        Route("/metrics", metrics),
        Route("/livez", live),
        Route("/readyz", ready),
        Route("/healthz", ready),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.agent = agent
    return app


async def add(request: Request) -> Response:
    """Count one increment or a list of them. If one is wrong, none is counted."""
    agent: Agent = request.app.state.agent
    if "origin" in request.headers:
        return _json({"error": "a web page may not count here: a request with an origin is refused"}, 403)
    try:
        found = [(_series(agent.intake, each, place), each.n) for each, place in _adds(await _body(request))]
    except BadBody as problem:
        return _json({"error": str(problem)}, problem.status)
    for series, n in found:
        series.add(n)
    agent.http_adds += len(found)
    return _json({"added": sum(n for _, n in found)})


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BadBody(f"body is too long: it must have at most {MAX_BODY_BYTES} bytes", 413)
    return bytes(body)


def _adds(body: bytes) -> list[tuple[Add, str]]:
    try:
        decoded = _decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        raise BadBody(f"body is no increment and no list of increments: {problem}") from None
    if isinstance(decoded, Add):
        return [(decoded, "$")]
    return [(each, f"$[{place}]") for place, each in enumerate(decoded)]


def _series(intake: Intake, each: Add, place: str) -> Counter:
    found = intake.find(each.counter, tuple(sorted(each.labels.items())))
    if isinstance(found, Reason):
        raise BadBody(f"counter {each.counter[:50]!r} {_PROBLEMS[found]} - at `{place}.counter`")
    return found


async def live(request: Request) -> Response:
    return _json({"live": True})


async def ready(request: Request) -> Response:
    """The agent counts without a coordinator too, so it is ready either way; `connected` is for people."""
    client = request.app.state.agent.client
    return _json({"ready": True, "connected": client.connected, "trouble": client.last_error})


async def metrics(request: Request) -> Response:
    page, content_type = exposition(request.app.state.agent, request.headers.get("accept", ""))
    return Response(page, headers={"content-type": content_type})


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, {"cache-control": "no-store"}, "application/json")
