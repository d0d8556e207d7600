"""ASGI middleware: counts each request by method, route and status.

    app.add_middleware(CountRequests, client=countless.connect())           # Starlette, FastAPI
    app = CountRequests(app, countless.connect())                           # any other framework

The route is the pattern (`/users/{id}`) that the framework leaves in the scope, never the path: paths come from outside
and have no bound. Requests without a route are counted under an empty one.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from countless.client.client import Client
from countless.client.http_requests import method_label
from countless.core.calendar import Per

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class CountRequests:
    """ASGI middleware that counts requests by method, route and status.

    Args:
        app: The application.
        client: From `connect`.
        counter: Name of the counter.
        per, tz, anchor: Windows, as for `Client.counter`.
    """

    def __init__(
        self,
        app: App,
        client: Client,
        counter: str = "requests",
        *,
        per: Per | None = None,
        tz: str = "UTC",
        anchor: int | None = None,
    ) -> None:
        self._app = app
        self._requests = client.counter(counter, per=per, tz=tz, anchor=anchor)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status = 500  # if the application fails before it sends a response

        async def record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, record_status)
        finally:
            labels = {"method": method_label(scope["method"]), "route": _pattern(scope), "status": str(status)}
            self._requests.labels(**labels).inc()


def _pattern(scope: Scope) -> str:
    """The route with the prefixes of mounts and included routers. FastAPI from 0.137 on has these in another place."""
    route, context = scope.get("route"), scope.get("fastapi", {}).get("effective_route_context")
    path: str = getattr(context, "path", "") or getattr(route, "path", "")
    if "app_root_path" not in scope:  # no mount was passed
        return path
    taken = scope["root_path"].removeprefix(scope["app_root_path"])
    mounts = _mounts(getattr(scope.get("router"), "routes", ()), taken)
    return mounts if mounts and hasattr(route, "routes") else mounts + path


def _mounts(routes: Iterable[Any], taken: str) -> str:
    """The patterns of the mounts that have taken this part of a path; empty if they are not found."""
    for route in routes:
        is_mount = hasattr(route, "routes") and hasattr(route, "path_regex")
        if is_mount and (found := route.path_regex.match(taken + "/")):
            rest = found["path"][:-1]
            inner = _mounts(route.routes, "/" + rest) if rest else ""
            if inner or not rest:
                return str(route.path) + inner
    return ""
