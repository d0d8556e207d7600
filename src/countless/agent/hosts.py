"""The names by which the agent may be called over HTTP.

A web page can bind a name of its own to 127.0.0.1, and then its requests to the agent carry no `Origin`. They carry
that name in `Host`, so other names than the agent's own are refused. An address cannot be bound to anything.
"""

from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from countless.agent.bodies import json


class CheckedHost:
    """ASGI middleware. `names` beside `localhost` and addresses; None: all, for an agent that others may reach."""

    def __init__(self, app: ASGIApp, names: frozenset[str] | None) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "localhost") if scope["type"] == "http" else "localhost"
        if self._names is None or scope.get("client") is None or is_own_name(host, self._names):
            return await self._app(scope, receive, send)
        text = f"Host {host[:100]!r} is not a name of this agent: use localhost, or its address"
        return await json({"error": text}, 403)(scope, receive, send)


def is_own_name(host: str, names: frozenset[str]) -> bool:
    """
    >>> [is_own_name(host, frozenset({"web-1"})) for host in ("localhost:2687", "[::1]", "WEB-1:80", "127.0.0.1:2687")]
    [True, True, True, True]
    >>> [is_own_name(host, frozenset()) for host in ("attacker.example:2687", "127.0.0.1.attacker.example", "")]
    [False, False, False]
    """
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    if name.lower() in {"localhost", *names}:
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
