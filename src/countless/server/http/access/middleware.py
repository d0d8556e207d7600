"""Middleware of all requests: the address of the caller, and the audit log of what it changes."""

from ipaddress import ip_address

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from countless.server.audit import AuditLog
from countless.server.http.access.auth import Access
from countless.server.tokens import digest

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_PATH_CHARS = 200


class ForwardedAddress:
    """ASGI middleware for a reverse proxy on this machine: if a connection comes from loopback, `client` is the last
    address in `X-Forwarded-For`.

    A proxy may pass on what its caller wrote there. So only an IP address is taken, which is all that logs, limits and
    the page can get from it; otherwise the caller has the address of the proxy.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            _set_client(scope)
        await self._app(scope, receive, send)


def _set_client(scope: Scope) -> None:
    values = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    peer = scope["client"][0] if scope.get("client") else ""
    if values and _is_loopback(peer):
        address = parse_address(values[-1].rpartition(b",")[2].decode("latin-1").strip())
        if address is not None:
            scope["client"] = (address, 0)


def _is_loopback(text: str) -> bool:
    address = parse_address(text)
    return address is not None and ip_address(address).is_loopback


def parse_address(text: str) -> str | None:
    """An IP address in its usual form. A zone (`fe80::1%eth0`) could be any text, so it is refused.

    >>> parse_address("2001:DB8:0::1"), parse_address("fe80::1%x"), parse_address("somewhere")
    ('2001:db8::1', None, None)
    """
    try:
        return None if "%" in text else str(ip_address(text))
    except ValueError:
        return None


class AuditedRequests:
    """ASGI middleware. Every request that changes something is in the audit log, with its token and address; a refused
    one, with its address and the reason. `app.state.audit` is an `AuditLog`.

    A token is named by the first digits of its digest, as `countless token list` shows it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                _note(scope, message["status"])
            await send(message)

        await self._app(scope, receive, watched)


def _note(scope: Scope, status: int) -> None:
    method, path = scope["method"], scope["path"][:MAX_PATH_CHARS]
    access: Access = scope["app"].state.access
    if status in (401, 403):
        _audit(scope).refused(_address(scope), f"{method} with {access.why_refused(HTTPConnection(scope))}")
    elif method not in _READS and status < 400:
        event = "deleted" if method == "DELETE" else "created" if status == 201 else "changed"
        query = scope.get("query_string", b"").decode("latin-1")[:MAX_PATH_CHARS]
        _audit(scope).record(event, caller_of(scope), path=path, query=query, status=status)


def _audit(scope: Scope) -> AuditLog:
    audit: AuditLog = scope["app"].state.audit
    return audit


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "unknown"


def caller_of(scope: Scope) -> str:
    """Address and token of a caller, without the token itself."""
    address = _address(scope)
    for name, value in scope["headers"]:
        if name == b"authorization":
            token = value.decode("latin-1").partition(" ")[2].strip()
            return f"{address} with token {digest(token).hex()[:12]}"
    return f"{address} without a token"
