"""WSGI middleware, with a real Flask application and with plain WSGI."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client as WerkzeugClient

import countless
from countless.client.client import Client
from countless.errors import InvalidParameter
from countless.wsgi import CountRequests, flask_route
from support.local_counters import counts_of


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    with countless.connect(site="web") as client:
        yield client


def counted(client: Client) -> dict[str, int]:
    return {name: count for name, count in counts_of(client).items() if count}


def test_requests_of_flask_are_counted_by_method_rule_and_status(client: Client) -> None:
    app = Flask("shop")

    @app.get("/users/<name>")
    def user(name: str) -> str:
        return {"anna": "hello"}[name]

    app.wsgi_app = CountRequests(app.wsgi_app, client, route=flask_route)  # type: ignore[method-assign]
    browser = app.test_client()
    browser.get("/users/anna")
    browser.get("/users/anna")
    browser.get("/users/otto")  # fails
    browser.get("/nothing")
    browser.open("/users/anna", method="BREW")
    assert counted(client) == {
        'requests{method="GET",route="/users/<name>",status="200"}': 2,
        'requests{method="GET",route="/users/<name>",status="500"}': 1,
        'requests{method="GET",route="",status="404"}': 1,
        'requests{method="other",route="",status="405"}': 1,
    }


def test_routes_of_applications_behind_a_dispatcher_have_its_prefixes(client: Client) -> None:
    shop, admin = Flask("shop"), Flask("admin")
    for app in (shop, admin):
        app.add_url_rule("/users/<name>", view_func=lambda name: name)
    both = DispatcherMiddleware(shop.wsgi_app, {"/admin": admin.wsgi_app})
    browser = WerkzeugClient(CountRequests(both, client, route=flask_route))
    for path in ("/users/anna", "/admin/users/anna", "/admin/nothing"):
        browser.get(path, base_url="http://localhost/behind-a-proxy")
    assert counted(client) == {
        'requests{method="GET",route="/users/<name>",status="200"}': 1,
        'requests{method="GET",route="/admin/users/<name>",status="200"}': 1,
        'requests{method="GET",route="",status="404"}': 1,
    }


def test_application_that_fails_before_its_response_is_counted_once_as_500(client: Client) -> None:
    def failing(environ: Any, start_response: Any) -> Any:
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        CountRequests(failing, client, "calls")({"REQUEST_METHOD": "POST"}, lambda *_: bytes)
    assert counted(client) == {'calls{method="POST",route="",status="500"}': 1}


def test_request_for_which_the_function_has_no_route_is_counted_and_answered(client: Client) -> None:
    def application(environ: Any, start_response: Any) -> list[bytes]:
        start_response("404 Not Found", [])
        return [b"no"]

    made = CountRequests(application, client, route=lambda environ: None)
    assert [*made({"REQUEST_METHOD": "GET"}, lambda *_: bytes)] == [b"no"]
    assert counted(client) == {'requests{method="GET",route="",status="404"}': 1}
    with pytest.raises(InvalidParameter, match="route must be a function of the environment"):
        CountRequests(application, client, route="/carts")  # type: ignore[arg-type]


def test_response_that_is_begun_again_after_an_error_is_counted_once(client: Client) -> None:
    started: list[str] = []

    def application(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        start_response("500 Internal Server Error", [], None)
        return [b""]

    def record(status: str, *_: Any) -> Callable[[bytes], object]:
        started.append(status)
        return bytes

    assert list(CountRequests(application, client)({"REQUEST_METHOD": "GET"}, record)) == [b""]
    assert started == ["200 OK", "500 Internal Server Error"]
    assert counted(client) == {'requests{method="GET",route="",status="200"}': 1}
