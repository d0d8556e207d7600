"""The middleware counts requests by method, route and status, and never by path."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

import countless
from countless.client.asgi import CountRequests
from countless.client.client import Client
from countless.client.transport.endpoint import Endpoint
from support.local_counters import counts_of


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def broken(request: Request) -> Response:
    raise RuntimeError("broken")


async def accept_and_close(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> countless.Client:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    return countless.connect()


def counted(client: countless.Client) -> dict[str, int]:
    return {name: count for name, count in counts_of(client).items() if count}


def test_requests_are_counted_by_method_route_and_status(client: countless.Client) -> None:
    routes = [
        Route("/users/{id}", hello, methods=["GET", "POST"]),
        Route("/broken", broken),
        Mount("/files", routes=[Route("/{name}", hello)]),
        WebSocketRoute("/live", accept_and_close),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(CountRequests, client=client)
    web = TestClient(app, raise_server_exceptions=False)
    for user in range(3):
        web.get(f"/users/{user}")
    web.post("/users/7")
    web.delete("/users/7")
    web.get("/broken")
    web.get("/nowhere/1")
    web.get("/nowhere/2")
    web.get("/files/a")
    web.request("BREW", "/users/7")
    with web.websocket_connect("/live"):
        pass
    assert counted(client) == {
        'requests{method="GET",route="/users/{id}",status="200"}': 3,
        'requests{method="POST",route="/users/{id}",status="200"}': 1,
        'requests{method="DELETE",route="/users/{id}",status="405"}': 1,
        'requests{method="GET",route="/broken",status="500"}': 1,
        'requests{method="GET",route="",status="404"}': 2,
        'requests{method="GET",route="/{name}",status="200"}': 1,
        'requests{method="other",route="/users/{id}",status="405"}': 1,
    }


async def test_failing_application_raises_and_is_counted_as_status_500(client: countless.Client) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await CountRequests(app, client, "hits")({"type": "http", "method": "GET"}, None, None)  # type: ignore[arg-type]
    assert counted(client) == {'hits{method="GET",route="",status="500"}': 1}


def test_requests_are_counted_in_windows(unused_url: str) -> None:
    client = Client(Endpoint.parse(unused_url), None, "here", wall_clock=lambda: 490_123 * 3600.0)
    app = CountRequests(Starlette(routes=[Route("/", hello)]), client, per="hour")
    assert TestClient(app).get("/").status_code == 200
    assert list(counted(client)) == ['requests{method="GET",route="/",status="200"}@hour:490123']
    client.close(0)
