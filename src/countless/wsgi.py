"""WSGI middleware: counts each request by method, route and status.

    app.wsgi_app = CountRequests(app.wsgi_app, countless.connect(), route=flask_route)     # Flask
    application = CountRequests(application, countless.connect())                            # any other framework

WSGI has no place for the route, so a function may return it, once the application has answered: a pattern such as
`/users/<id>`, never the path, because paths come from outside and have no bound. Without it all routes are one.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from countless.client.client import Client
from countless.client.http_requests import method_label
from countless.core.calendar import Per
from countless.errors import InvalidParameter

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
