"""WSGI middleware: counts each request by method, route and status, and admits requests while a budget lasts.

    app.wsgi_app = CountRequests(app.wsgi_app, countless.connect(), route=flask_route)     # Flask
    application = CountRequests(application, countless.connect())                            # any other framework

    app.wsgi_app = LimitRequests(app.wsgi_app, countless.connect(), "keys/{key}", key=header_key("x-api-key"))

WSGI has no place for the route, so a function may return it, once the application has answered: a pattern such as
`/users/<id>`, never the path, because paths come from outside and have no bound. Without it all routes are one.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Unpack

from countless.client.client import Client
from countless.client.http_requests import method_label
from countless.core.calendar import Per
from countless.errors import InvalidParameter
from countless.limiting.charge import KeyAndCost, digest
from countless.limiting.limit import Limit, Options, refusal_of
from countless.limiting.responses import PROBLEMS

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def flask_route(environ: "WSGIEnvironment") -> str:
    """The rule of the request that Flask is answering, such as `/users/<id>`."""
    from flask import request  # what the application has, if it uses this function

    return request.url_rule.rule if request and request.url_rule else ""


class CountRequests:
    """WSGI middleware that counts requests by method, route and status.

    Args:
        app: The application.
        client: From `connect`.
        counter: Name of the counter.
        route: A function of the WSGI environment that returns the route's pattern, never the path: `flask_route` for
            Flask. None stands for an empty route, the default.
        per, tz, anchor: Windows, as for `Client.counter`.
    """

    def __init__(
        self,
        app: "WSGIApplication",
        client: Client,
        counter: str = "requests",
        *,
        route: Callable[["WSGIEnvironment"], str | None] = lambda environ: None,
        per: Per | None = None,
        tz: str = "UTC",
        anchor: int | None = None,
    ) -> None:
        if not callable(route):
            raise InvalidParameter("route", route, "a function of the environment, such as flask_route")
        self._app = app
        self._route = route
        self._requests = client.counter(counter, per=per, tz=tz, anchor=anchor)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        counted, mounted_at = False, environ.get("SCRIPT_NAME", "")

        def count(status: str) -> None:
            nonlocal counted
            if not counted:
                counted = True
                method = method_label(environ["REQUEST_METHOD"])
                if route := self._route(environ) or "":  # behind a dispatcher that has taken the beginning of the path
                    route = environ.get("SCRIPT_NAME", "").removeprefix(mounted_at) + route
                self._requests.labels(method=method, route=route, status=status[:3]).inc()

        def count_and_start(status: str, *rest: Any) -> Any:
            count(status)
            return start_response(status, *rest)

        try:
            return self._app(environ, count_and_start)
        except BaseException:
            count("500")  # if the application fails before it begins a response
            raise


def header_key(header: str, missing: str = "anonymous") -> Callable[["WSGIEnvironment"], str]:
    """Return a key function of the WSGI environment; its keys are those of the ASGI function."""
    name = "HTTP_" + header.upper().replace("-", "_")

    def key(environ: "WSGIEnvironment") -> str:
        value = environ.get(name)
        return missing if value is None else digest(value.encode("latin-1"))

    return key


class LimitRequests:
    """WSGI middleware that takes units of a budget for each request, and refuses the request if none are left.

    Args:
        app: The application.
        client: From `connect`.
        budget: As for ASGI.
        key, cost: Functions of the WSGI environment, as for ASGI.
        options: Those of `limited`.
    """

    def __init__(
        self,
        app: "WSGIApplication",
        client: Client,
        budget: str,
        *,
        key: Callable[["WSGIEnvironment"], object] | None = None,
        cost: Callable[["WSGIEnvironment"], int] | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._limit = Limit(client, budget, **options)
        self._requests = KeyAndCost(budget, key, cost)
        self._app = app

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        values, cost = self._requests.units(environ)
        try:
            budget = self._limit.take(values, cost)
        except PROBLEMS as problem:
            refusal = refusal_of(problem)
            start_response(f"{refusal.status} {HTTPStatus(refusal.status).phrase}", refusal.headers)
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [refusal.body]
        if budget is None:
            return self._app(environ, start_response)

        def start_with_fields(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*headers, *self._limit.headers(budget)], *rest)

        return self._app(environ, start_with_fields)
