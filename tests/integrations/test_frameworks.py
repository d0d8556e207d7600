"""Limits in FastAPI, Flask, Litestar, Django, Django REST framework and Celery, with budgets of a real coordinator."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, ClassVar, cast

import flask
import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from flask.views import MethodView
from werkzeug.test import Client as WsgiClient

import countless
from countless.asgi import LimitRequests as LimitAsgiRequests
from countless.asgi import header_key
from countless.errors import InvalidParameter
from countless.integrations import fastapi as for_fastapi
from countless.integrations import flask as for_flask
from countless.wsgi import LimitRequests as LimitWsgiRequests
from countless.wsgi import header_key as wsgi_key
from support.service import TIMEOUT_S, Server, environment, until
from support.uwsgi import Uwsgi

pytestmark = pytest.mark.slow

RULES = ("keys/*", "orgs/*", "teams/*", "users/*", "throttle/uploads/*", "views/*", "exports", "tasks")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        for name in RULES:
            server.reader.request("POST", "/api/v1/budgets", {"name": name, "limit": 2, "slack": 0.0, "per": "month"})
        running = {"name": "running/*", "limit": 1, "kind": "in_flight"}
        server.reader.request("POST", "/api/v1/budgets", running)
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[countless.Client]:
    with countless.connect(server.url) as client:
        yield client


def test_routers_of_fastapi_have_limits_of_their_own(client: countless.Client) -> None:
    orgs = APIRouter(dependencies=[Depends(for_fastapi.Limited("orgs/{org}", client=client, wait=TIMEOUT_S))])
    key = header_key("x-api-key")
    teams = APIRouter(
        dependencies=[Depends(for_fastapi.Limited("teams/{key}", client=client, key=key, wait=TIMEOUT_S))]
    )

    @orgs.get("/orgs/{org}")
    @teams.get("/teams")
    async def hello() -> str:
        return "hello"

    app = FastAPI()
    app.include_router(orgs, prefix="/v1")
    app.include_router(teams)
    web = TestClient(app)
    answers = [web.get("/v1/orgs/acme") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["ratelimit"].startswith('"default";r=1;t=')
    assert answers[2].headers["ratelimit"].startswith('"default";r=0;t=')
    assert int(answers[2].headers["retry-after"]) > 0
    assert answers[2].json() == {"detail": "quota exceeded"}
    assert [web.get("/v1/orgs/other").status_code, web.get("/teams").status_code] == [200, 200]


def test_decorated_route_of_fastapi_answers_429(client: countless.Client) -> None:
    app = FastAPI()
    for_fastapi.answer_refusals(app)

    @app.get("/{tenant}")
    @countless.limited("keys/{tenant}", client=client, wait=TIMEOUT_S)
    async def hello(tenant: str) -> str:
        return tenant

    @app.get("/no/rule")
    @countless.limited("nothing", client=client, wait=TIMEOUT_S)
    def no_rule() -> None: ...

    @app.get("/no/key")
    @countless.limited("keys/{key}", client=client, key=lambda: "")
    def no_key() -> None: ...

    @app.get("/budget/of/its/own")
    def spend() -> None:
        client.budget("keys/fastapi").reserve(1, TIMEOUT_S)

    @app.get("/others/errors")
    @countless.limited("keys/{key}", client=client, key=lambda: "others", wait=TIMEOUT_S)
    def fail() -> None:
        raise InvalidParameter("x", 1, "2")

    web = TestClient(app)
    answers = [web.get("/fastapi") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].headers["content-type"] == "application/problem+json"
    assert answers[2].json()["violated-policies"] == ["default"]
    assert (web.get("/no/rule").status_code, web.get("/no/rule").headers["retry-after"]) == (503, "1")
    assert web.get("/no/key").status_code == 400
    own = web.get("/budget/of/its/own")
    assert (own.status_code, own.json()["title"], int(own.headers["retry-after"]) > 0) == (429, "quota exceeded", True)
    with pytest.raises(InvalidParameter, match="x must be 2"):
        web.get("/others/errors")


def test_routers_with_websockets_and_two_limits(client: countless.Client) -> None:
    limits = [for_fastapi.Limited(name, client=client, wait=TIMEOUT_S) for name in ("orgs/{org}", "teams/{org}")]
    router = APIRouter(prefix="/{org}", dependencies=[Depends(limit) for limit in limits])

    @router.get("/hello")
    def hello() -> str:
        return "hello"

    @router.websocket("/live")
    async def live(socket: WebSocket) -> None:  # not limited, as with middleware
        await socket.accept()
        await socket.close()

    app = FastAPI()
    app.include_router(router)
    web = TestClient(app)
    for _ in range(3):
        with web.websocket_connect("/two/live"):
            pass
    answers = [web.get("/two/hello") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert len(answers[0].headers.get_list("ratelimit")) == 2


def test_dependency_of_fastapi_holds_units_until_a_stream_ends(client: countless.Client) -> None:
    @countless.limited("running/{model}", client=client, hold=True, wait=0.1)
    async def slot(model: str) -> AsyncIterator[None]:
        yield

    held: list[str] = []

    def items() -> Iterator[str]:
        for item in "ab":
            held.append(str(client.budget("running/big")))
            yield item

    app = FastAPI()
    for_fastapi.answer_refusals(app)
    app.get("/{model}", dependencies=[Depends(slot)])(lambda model: StreamingResponse(items()))
    web, budget = TestClient(app), client.budget("running/big")
    with budget.acquire(wait=TIMEOUT_S):
        until(lambda: web.get("/big").status_code == 429, "a decision")  # 503 until there is one
    until(lambda: web.get("/big").text == "ab", "a decision")
    assert held == ["<ClientBudget 'running/big': 0 spent, 1 held, 0 remaining>"] * 2
    assert "0 spent, 0 held" in str(budget)


def test_field_that_is_no_parameter_of_the_path_is_named(client: countless.Client) -> None:
    app = FastAPI(dependencies=[Depends(for_fastapi.Limited("orgs/{tenant}", client=client))])
    app.get("/{org}")(lambda org: "hello")
    with pytest.raises(InvalidParameter, match="parameters of the path /acme; tenant is none of them"):
        TestClient(app).get("/acme")
    with pytest.raises(InvalidParameter, match=r"a name with \{key\} if a key is given"):
        for_fastapi.Limited("orgs/{key}", client=client)


def test_wrong_address_of_the_coordinator_is_no_fault_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countless.client.default._client", None)
    monkeypatch.setenv("COUNTLESS_URL", "ftp://127.0.0.1")
    app = FastAPI(dependencies=[Depends(for_fastapi.Limited("all"))])
    app.get("/")(lambda: "hello")
    with pytest.raises(InvalidParameter, match="ftp"):
        TestClient(app).get("/")


def test_flask_by_wsgi_and_by_decorator(client: countless.Client, caplog: pytest.LogCaptureFixture) -> None:
    app = flask.Flask("test")
    for_flask.answer_refusals(app)
    app.wsgi_app = LimitWsgiRequests(  # type: ignore[method-assign]
        app.wsgi_app, client, "keys/{key}", key=wsgi_key("x-api-key"), wait=TIMEOUT_S,
        cost=lambda environ: int(environ["PATH_INFO"] == "/"),
    )  # fmt: skip

    @app.get("/")
    def hello() -> str:
        return "hello"

    @app.get("/exports")
    @countless.limited("exports", client=client, wait=TIMEOUT_S)
    def export() -> str:
        return "rows"

    class Report(MethodView):
        decorators: ClassVar[Any] = [countless.limited("views/{tenant}", client=client, wait=TIMEOUT_S)]

        def get(self, tenant: str) -> str:
            return tenant

    app.add_url_rule("/reports/<tenant>", view_func=Report.as_view("report"))
    app.add_url_rule("/reports/of/<owner>", view_func=Report.as_view("owner"))
    web = app.test_client()
    answers = [web.get("/", headers={"x-api-key": "secret"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["ratelimit"].startswith('"default";r=1;t=')
    assert answers[2].get_json()["title"] == "quota exceeded"
    assert web.head("/", headers={"x-api-key": "secret"}).data == b""
    assert web.get("/").status_code == 200  # another key
    exports = [web.get("/exports") for _ in range(3)]
    assert [answer.status_code for answer in exports] == [200, 200, 429]
    assert int(exports[2].headers["retry-after"]) > 0
    assert [web.get("/reports/acme").status_code for _ in range(3)] == [200, 200, 429]
    assert web.get("/reports/of/acme").status_code == 500
    assert "fields are of these: owner; tenant is none of them" in caplog.text
    of_wrong_kind = LimitWsgiRequests(app.wsgi_app, client, "running/{key}", key=lambda environ: "a", wait=TIMEOUT_S)
    assert WsgiClient(of_wrong_kind).get("/").status_code == 503
    assert "limits what runs at the same time: use acquire" in caplog.text
    missing = LimitWsgiRequests(app.wsgi_app, client, "missing/{key}", key=lambda environ: "a", wait=TIMEOUT_S)
    app.wsgi_app = missing  # type: ignore[method-assign]
    assert web.get("/").status_code == 503
    assert "countless budget create 'missing/*' --limit N --per minute" in caplog.text


def test_litestar_by_asgi_and_by_decorator(client: countless.Client) -> None:
    from litestar import Litestar, get  # every worker that collects this file would wait for them
    from litestar.middleware import DefineMiddleware
    from litestar.params import FromPath
    from litestar.testing import TestClient as LitestarClient

    from countless.integrations import litestar as for_litestar

    @get("/")
    async def hello() -> str:
        return "hello"

    @get("/{org:str}")
    @countless.limited("orgs/{org}", client=client, wait=TIMEOUT_S)
    async def export(org: FromPath[str]) -> str:
        return "rows"

    limit = DefineMiddleware(
        cast(Any, LimitAsgiRequests), client=client, budget="keys/{key}",
        key=lambda scope: "litestar" if scope["path"] == "/" else None, wait=TIMEOUT_S,
    )  # fmt: skip
    app = Litestar([hello, export], middleware=[limit], on_app_init=[for_litestar.answer_refusals], logging_config=None)
    with LitestarClient(app) as web:
        assert [web.get("/").status_code for _ in range(3)] == [200, 200, 429]
        answers = [web.get("/litestar") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].json()["title"] == "quota exceeded"
    assert answers[2].headers["content-type"] == "application/problem+json"


DJANGO = """
import asyncio, sys
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="x", ROOT_URLCONF="__main__", ALLOWED_HOSTS=["*"], USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "rest_framework"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware",
                "django.contrib.auth.middleware.AuthenticationMiddleware",
                "countless.integrations.django.limit_requests"],
    COUNTLESS_LIMIT={"budget": "users/{key}", "key": "countless.integrations.django.user_or_address", "wait": 90},
    REST_FRAMEWORK={"DEFAULT_THROTTLE_CLASSES": ["countless.integrations.rest_framework.ScopedThrottle"],
                    "DEFAULT_AUTHENTICATION_CLASSES": []},
)
django.setup()
from django import views
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView
import countless
from countless.integrations import rest_framework as throttles

throttles.ScopedThrottle.options = {"wait": 90}

class Upload(APIView):
    throttle_scope = "uploads"
    def get(self, request):
        return Response("stored")

class Free(APIView):
    def get(self, request):
        return Response("free")

limited = countless.limited("users/{name}", wait=90)

class View(views.View):
    @limited
    def get(self, request, name): return HttpResponse("view")

@method_decorator(limited, name="dispatch")
class Dispatched(views.View):
    def get(self, request, name): return HttpResponse("view")

@limited
async def view_async(request, name): return HttpResponse("view")

urlpatterns = [path("view/<name>", limited(lambda request, name: HttpResponse("view"))),
               path("class/<name>", View.as_view()), path("dispatched/<name>", Dispatched.as_view()),
               path("async/<name>", view_async),
               path("rest/<name>", api_view()(limited(lambda request, name: Response("view"))))]
urlpatterns += [path("", lambda request: HttpResponse("hello")), path("uploads", Upload.as_view()),
               path("free", Free.as_view())]

def show(answers):
    print([answer.status_code for answer in answers], flush=True)
    return answers[-1]

def addressed(n): return {"REMOTE_ADDR": f"10.0.0.{n}"}

limit_requests, answer_refusals = settings.MIDDLEWARE[2], "countless.integrations.django.AnswerRefusals"
last = show([Client().get("/", **addressed(1)) for _ in range(3)])
print(last["Content-Type"], int(last["Retry-After"]) > 0, last["RateLimit"].startswith('"default";r=0;'))
async def ask(): return [await AsyncClient().get("/", **addressed(2)) for _ in range(3)]
last = show(asyncio.run(ask()))
settings.MIDDLEWARE = settings.MIDDLEWARE[:2]
last = show([Client().get("/uploads", **addressed(3)) for _ in range(3)])
print(int(last["Retry-After"]) > 0, "throttled" in last.json()["detail"])
show([Client().get("/free", **addressed(3)) for _ in range(3)])
show([Client().get("/uploads", **addressed(3), HTTP_X_FORWARDED_FOR="x" * 5000)])
settings.MIDDLEWARE = [answer_refusals]
for view in ("view", "class", "dispatched", "async", "rest"):
    last = show([Client().get(f"/{view}/{view}") for _ in range(3)])
print(last["Content-Type"], int(last["Retry-After"]) > 0, last["RateLimit"].startswith('"default";r=0;'))
async def ask(): return [await AsyncClient().get("/async/again") for _ in range(3)]
show(asyncio.run(ask()))
Upload.throttle_scope = "unknown"
print(show([Client().get("/uploads", **addressed(3))])["Retry-After"])
throttles.ScopedThrottle.options = {"on_unreachable": "pass"}
try:
    Client().get("/uploads", **addressed(3))
except Exception as error:
    print(type(error).__name__, error.parameter)
settings.MIDDLEWARE = [limit_requests]
try:
    Client().get("/")
except Exception as error:
    print(type(error).__name__, error)
for setting in (None, {"budget": "users/{key}"}, {"budget": "all", "limit": 5}):
    settings.COUNTLESS_LIMIT = setting
    try:
        Client().get("/")
    except Exception as error:
        print(type(error).__name__, str(error).partition(" is not")[0])
"""


def test_django_by_middleware_and_by_throttle(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DJANGO], env=environment(COUNTLESS_URL=server.url), capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "[200, 200, 429]",
        "application/problem+json True True",
        "[200, 200, 429]",
        "[200, 200, 429]",
        "True True",
        "[200, 200, 200]",
        "[400]",
        *["[200, 200, 429]"] * 5,
        "application/problem+json True True",
        "[200, 200, 429]",
        *("[503]", "1"),
        "InvalidParameter on_unreachable",
        "ImproperlyConfigured user_or_address needs request.user: put limit_requests below AuthenticationMiddleware",
        "InvalidParameter COUNTLESS_LIMIT = None",
        "InvalidParameter budget = 'users/{key}'",
        "InvalidParameter COUNTLESS_LIMIT = {'budget': 'all', 'limit': 5}",
    ], done.stderr


CELERY = """
import countless
from celery import Celery
app = Celery("tasks", broker="memory://", backend="file://RESULTS")
app.conf.worker_hijack_root_logger = False

@app.task
@countless.limited("tasks", wait=90)
def call(n):
    return n
"""


def test_celery_tasks_share_a_limit_though_each_has_a_process_of_its_own(server: Server, tmp_path: Path) -> None:
    """A child of the pool ends without `atexit`; it must hand in what it was granted and did not spend."""
    server.reader.request("PATCH", "/api/v1/budgets/tasks", {"limit": 8})
    (tmp_path / "tasks.py").write_text(CELERY.replace("RESULTS", str(tmp_path)))
    program = """
from celery.contrib.testing.worker import start_worker
import countless, tasks
with start_worker(tasks.app, perform_ping_check=False, pool="prefork", concurrency=1, max_tasks_per_child=1):
    results = [tasks.call.delay(n) for n in range(9)]
    print([result.get(timeout=90, propagate=False) for result in results])
try:
    countless.limited("tasks")(tasks.call)
except countless.InvalidParameter as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(COUNTLESS_URL=server.url, PYTHONPATH=_with(tmp_path)),
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    results, wrong = done.stdout.splitlines()
    assert results.startswith("[0, 1, 2, 3, 4, 5, 6, 7, "), done.stderr
    assert ", LimitExceeded('tasks', 1, " in results  # made again from its arguments, with the time to retry
    assert wrong.endswith("put limited below decorators that return something else")


def _with(directory: Path) -> str:
    return os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])


DJANGO_SITE = """
from django.conf import settings

settings.configure(
    SECRET_KEY="x", ROOT_URLCONF="web", ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework"],
    MIDDLEWARE=["countless.integrations.django.limit_requests"],
    COUNTLESS_LIMIT={"budget": "keys/{key}", "key": "web.key", "wait": 90},
    REST_FRAMEWORK={"DEFAULT_THROTTLE_CLASSES": ["countless.integrations.rest_framework.ScopedThrottle"],
                    "DEFAULT_AUTHENTICATION_CLASSES": []},
)

def key(request):
    return None if request.path == "/uploads" else "django"

from django.core.wsgi import get_wsgi_application
app = get_wsgi_application()

from django.http import HttpResponse
from django.urls import path
from rest_framework.response import Response
from rest_framework.views import APIView
from countless.integrations.rest_framework import ScopedThrottle

ScopedThrottle.options = {"wait": 90}

class Upload(APIView):
    throttle_scope = "uploads"
    def get(self, request):
        return Response("stored")

urlpatterns = [path("", lambda request: HttpResponse("hello")), path("uploads", Upload.as_view())]
"""
GUNICORN = """
import os, countless
from countless.wsgi import LimitRequests

def hello(environ, start_response):
    start_response("200 OK", [("content-type", "text/plain")])
    return [b"hello"]

app = LimitRequests(hello, countless.connect(), "keys/{key}", key=lambda environ: "gunicorn", wait=90)
"""
UWSGI = GUNICORN.replace("gunicorn", "uwsgi")


def statuses(port: int, path: str = "/", requests: int = 20) -> list[int]:
    def status(_: int) -> int:
        connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        return sorted(pool.map(status, range(requests)))


@pytest.mark.parametrize(
    ("application", "option", "paths"),
    [(GUNICORN, "--preload", ["/"]), (DJANGO_SITE, "--no-sendfile", ["/", "/uploads"])],
)
def test_workers_of_gunicorn_share_one_limit(
    server: Server, tmp_path: Path, application: str, option: str, paths: list[str]
) -> None:
    (tmp_path / "web.py").write_text(application)
    command = [sys.executable, "-m", "gunicorn", option, "--workers", "3", "--bind", "127.0.0.1:0", "web:app"]
    variables = environment(COUNTLESS_URL=server.url)
    web = subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True)
    try:
        assert web.stderr is not None
        port = next(int(line.split(":")[-1].split()[0]) for line in web.stderr if "Listening at" in line)
        for path in paths:
            assert statuses(port, path) == [200] * 2 + [429] * 18
    finally:
        web.terminate()  # orphaned workers would notice only after seconds
        web.communicate(timeout=TIMEOUT_S)


UVICORN = """
import countless
from fastapi import FastAPI

app = FastAPI()

@app.get("/")
@countless.limited("teams/uvicorn", hold=True, wait=90)
def hello(): ...
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_uvicorn_that_is_stopped_hands_in_what_it_was_granted(server: Server, tmp_path: Path, workers: str) -> None:
    """Its client is made in a request, when uvicorn handles SIGTERM itself; at the end it raises the signal again."""
    (tmp_path / "web.py").write_text(UVICORN)
    command = [sys.executable, "-m", "uvicorn", "--port", "0", "--workers", workers, "web:app"]
    variables = environment(COUNTLESS_URL=server.url, COUNTLESS_SITE="uvicorn")
    web = subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True)
    assert web.stderr is not None
    port = next(int(line.split(":")[-1].split()[0]) for line in web.stderr if "running on" in line)

    def is_answered() -> bool:
        with suppress(ConnectionRefusedError):  # it says where it runs before it listens
            return statuses(port, requests=1) == [200]
        return False

    until(is_answered, "an answer")
    assert "uvicorn" in {site["site"] for site in server.sites()}
    web.terminate()
    web.communicate(timeout=TIMEOUT_S)
    assert "uvicorn" not in {site["site"] for site in server.sites()}


def test_workers_of_uwsgi_share_one_limit(server: Server, tmp_path: Path) -> None:
    web = Uwsgi(tmp_path, server.url, "default", application=UWSGI)
    try:
        assert statuses(web.port) == [200] * 2 + [429] * 18
    finally:
        web.kill()


def test_adapters_import_no_framework_that_is_not_asked_for() -> None:
    program = (
        "import sys, countless.wsgi, countless.limiting.limited as _; print({'flask', 'asyncio'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout == "set()\n"
