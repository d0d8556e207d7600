"""Every request that changes something is in the audit log, with its token and address; a refused one, with its address
and the reason.

A token is named by the first digits of its digest, as `countless token list` shows it.
"""

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from countless.server.audit import AuditLog
from countless.server.http.access.auth import Access
from countless.server.tokens import digest

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_PATH_CHARS = 200


class AuditedRequests:
    """ASGI middleware. `app.state.audit` is an `AuditLog`."""

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
