"""The middleware counts requests by method, route and status, and never by path."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

import countless
from countless.asgi import CountRequests
from countless.client.client import Client
from countless.client.surroundings import REAL
from countless.client.transport.endpoint import Endpoint
from support.local_counters import counts_of
from support.service import TIMEOUT_S

ROOT = Path(__file__).parents[2]


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
        Mount("/files", routes=[Route("/{name}", hello), Mount("/{name}/old", routes=[Route("/{name}", hello)])]),
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
    web.get("/files/a/old/b")
    web.get("/files/a/old/b/c/d")
    web.request("BREW", "/users/7")
    with web.websocket_connect("/live"):
        pass
    assert counted(client) == {
        'requests{method="GET",route="/users/{id}",status="200"}': 3,
        'requests{method="POST",route="/users/{id}",status="200"}': 1,
        'requests{method="DELETE",route="/users/{id}",status="405"}': 1,
        'requests{method="GET",route="/broken",status="500"}': 1,
        'requests{method="GET",route="",status="404"}': 2,
        'requests{method="GET",route="/files/{name}",status="200"}': 1,
        'requests{method="GET",route="/files/{name}/old/{name}",status="200"}': 1,
        'requests{method="GET",route="/files/{name}/old",status="404"}': 1,
        'requests{method="other",route="/users/{id}",status="405"}': 1,
    }


ROUTERS = """
from fastapi import APIRouter, FastAPI

import countless
from countless.asgi import CountRequests
from starlette.testclient import TestClient

items, team = APIRouter(), APIRouter(prefix="/team")

@items.get("/items/{i}")
def item(i: int) -> int:
    return i

team.include_router(items, prefix="/shared")
app = FastAPI()
app.include_router(items, prefix="/v1")
app.include_router(items, prefix="/v2")
app.include_router(team)
app.add_api_route("/plain/{i}", item)
other, deepest = FastAPI(), FastAPI()
other.include_router(items, prefix="/v1")
deepest.include_router(team)
other.mount("/deep", deepest)
app.mount("/sub", other)
app.mount("/{tenant}/own", other)
client = countless.connect()
app.add_middleware(CountRequests, client=client)
web = TestClient(app, root_path="/behind-a-proxy")
for path in ("/v1/items/1", "/v2/items/1", "/v2/items/none", "/team/shared/items/1", "/plain/1", "/nowhere",
             "/sub/v1/items/1", "/acme/own/v1/items/1", "/umbrella/own/deep/team/shared/items/1"):
    web.get("/behind-a-proxy" + path)
"""
PATTERNS = {
    'requests{method="GET",route="/v1/items/{i}",status="200"}': 1,
    'requests{method="GET",route="/v2/items/{i}",status="200"}': 1,
    'requests{method="GET",route="/v2/items/{i}",status="422"}': 1,
    'requests{method="GET",route="/team/shared/items/{i}",status="200"}': 1,
    'requests{method="GET",route="/plain/{i}",status="200"}': 1,
    'requests{method="GET",route="",status="404"}': 1,
    'requests{method="GET",route="/sub/v1/items/{i}",status="200"}': 1,
    'requests{method="GET",route="/{tenant}/own/v1/items/{i}",status="200"}': 1,
    'requests{method="GET",route="/{tenant}/own/deep/team/shared/items/{i}",status="200"}': 1,
}


def test_routes_of_included_routers_have_their_prefixes(client: countless.Client) -> None:
    names: dict[str, Any] = {}
    exec(ROUTERS, names)  # noqa: S102
    assert counted(names["client"]) == PATTERNS


@pytest.mark.soak
def test_routes_have_their_prefixes_with_the_oldest_fastapi_that_is_supported(tmp_path: Path) -> None:
    """The dev extra names that version; the lock file has the newest, which the test above runs."""
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--target",
        str(tmp_path),
        "fastapi==0.115.0",
        "httpx",
    ]
    subprocess.run(install, check=True, timeout=TIMEOUT_S)
    show = (
        "\nimport json\nfrom support.local_counters import counts_of\n"
        "print(json.dumps({name: count for name, count in counts_of(client).items() if count}))"
    )
    path = os.pathsep.join([str(tmp_path), *(str(ROOT / each) for each in ("src", "tests"))])
    environment = os.environ | {"PYTHONPATH": path, "COUNTLESS_DISABLE": "1"}
    command = [sys.executable, "-W", "ignore", "-c", ROUTERS + show]
    shown = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert json.loads(shown.stdout) == PATTERNS


async def test_failing_application_raises_and_is_counted_as_status_500(client: countless.Client) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await CountRequests(app, client, "hits")({"type": "http", "method": "GET"}, None, None)  # type: ignore[arg-type]
    assert counted(client) == {'hits{method="GET",route="",status="500"}': 1}


def test_requests_are_counted_in_windows() -> None:
    surroundings = REAL._replace(wall_clock=lambda: 490_123 * 3600.0)
    client = Client(Endpoint.parse("http://127.0.0.1:1"), None, "here", surroundings=surroundings)
    app = CountRequests(Starlette(routes=[Route("/", hello)]), client, per="hour")
    assert TestClient(app).get("/").status_code == 200
    assert list(counted(client)) == ['requests{method="GET",route="/",status="200"}@hour:490123']
    client.close(0)
