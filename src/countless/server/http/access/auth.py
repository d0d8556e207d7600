"""Authentication: one place decides what a request may do.

| scope | allows |
|---|---|
| `site` | to connect and count; nothing can be read with it |
| `read` | to read answers: estimate, lower, upper, state |
| `operator` | everything: metrics and data of single sites, every change, and what the other scopes allow |

A request without a valid token may do nothing, whichever tokens there are. The one exception is a coordinator that was
started with `--open`: there, programs on the same machine that show no token may do everything. See `_is_local`.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from time import time
from typing import Any, NamedTuple, Protocol

from starlette.requests import HTTPConnection
from starlette.responses import Response, StreamingResponse

from countless.server.storage.base import Token, TokenStore
from countless.server.tokens import digest
from countless.token_file import SCOPES

log = logging.getLogger("countless.tokens")

CHECK_S = 1.0
SAVE_USES_S = 60.0
_LOCAL_NAMES = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
# Headers that reverse proxies add. A request that has one comes from another machine, whatever its address is.
_FORWARDED = re.compile(
    "forwarded|via|x-forwarded-.*|x-real-ip|x-client-ip|x-cluster-client-ip|true-client-ip|cf-connecting-ip"
)


class Grant(NamedTuple):
    scopes: frozenset[str]
    site: str | None = None  # a site token may be bound to one site
    token: bytes | None = None  # the digest of the token that allows this

    def allows(self, scope: str) -> bool:
        """`operator` includes the others."""
        return scope in self.scopes or "operator" in self.scopes


class Authenticator(Protocol):
    def authenticate(self, caller: HTTPConnection) -> Grant:
        """Return the rights of the caller; `NOTHING` if it is not known."""


NOTHING = Grant(frozenset())
EVERYTHING = Grant(frozenset(SCOPES))


class Access:
    """Authenticates by token; `is_open`: programs on this machine too, without one.

    It keeps a list of connections and streams that a token has opened, and ends them when the token is revoked or
    expires.
    """

    def __init__(self, store: TokenStore, is_open: bool = False, clock: Callable[[], float] = time) -> None:
        self._store = store
        self._is_open = is_open
        self._clock = clock
        self._held: dict[bytes, set[Callable[[], None]]] = {}  # what ends them, by token
        self._uses: dict[bytes, int] = {}

    def authenticate(self, caller: HTTPConnection) -> Grant:
        token = self._token_of(caller)
        if token is not None and token.valid_at(self._clock()):
            self._uses[token.digest] = int(self._clock())
            return Grant(frozenset({token.scope}), token.site, token.digest)
        is_open = self._is_open and "authorization" not in caller.headers
        return EVERYTHING if is_open and _is_local(caller) else NOTHING

    def _token_of(self, caller: HTTPConnection) -> Token | None:
        kind, _, text = caller.headers.get("authorization", "").partition(" ")
        return self._store.token(digest(text.strip())) if kind.lower() == "bearer" else None

    def why_refused(self, caller: HTTPConnection) -> str:
        """For operators: a caller is not told whether its token was ever valid. No text of the caller is in it."""
        if "authorization" not in caller.headers:
            return "no token"
        token = self._token_of(caller)
        if token is None:
            return "a token that is not known here"
        if not token.valid_at(self._clock()):
            return f"a token that has expired, with label {token.label}"
        return f"a token of scope {token.scope}, which does not allow this"

    @contextmanager
    def hold(self, grant: Grant, end: Callable[[], None]) -> Iterator[None]:
        """While the caller uses this grant. `end` is called at most once, by `end_revoked`."""
        if grant.token is None:
            yield
            return
        held = self._held.setdefault(grant.token, set())
        held.add(end)
        try:
            yield
        finally:
            held.discard(end)
            if not held and self._held.get(grant.token) is held:
                del self._held[grant.token]

    def end_revoked(self) -> None:
        """Call it every second: what tokens have opened ends when they are revoked or expire."""
        now = self._clock()
        for key in list(self._held):
            token = self._store.token(key)
            if token is None or not token.valid_at(now):
                for end in list(self._held.pop(key)):
                    end()

    def take_uses(self) -> dict[bytes, int]:
        """The last use of each token since the last call; a token with an open connection is in use now."""
        uses, self._uses = self._uses | dict.fromkeys(self._held, int(self._clock())), {}
        return uses


def _is_local(caller: HTTPConnection) -> bool:
    """A program on this machine: it connects from loopback, not through a proxy that shows itself, and is no web page
    of another site. These send an `Origin`, `Sec-Fetch-Site`, or a `Host` that an attacker bound to loopback. Older
    nginx, as it is installed, adds no header, but uses HTTP/1.0. A proxy that shows none of this goes unnoticed.
    """
    try:
        near = caller.client is not None and ip_address(caller.client.host).is_loopback
    except ValueError:
        return False
    forwarded = caller.scope.get("http_version") == "1.0" or any(map(_FORWARDED.fullmatch, caller.headers))
    named = _LOCAL_NAMES.fullmatch(caller.headers.get("host", "")) is not None
    foreign = "origin" in caller.headers or caller.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    return near and named and not forwarded and not foreign


def peer_of(caller: HTTPConnection, grant: Grant) -> str:
    """A caller's name for limits on what one may use: its token, or else its address. Not the header: one token can be
    written in several ways.
    """
    if grant.token is not None:
        return f"token {grant.token.hex()[:16]}"
    return f"address {caller.client.host if caller.client else ''}"


# Streams end when their token is revoked or expires; so do connections of sites (`sockets/websocket.py`)


def until_revoked(response: Response, access: object, grant: Grant) -> Response:
    """The response; if it is a stream, it ends with the token."""
    if isinstance(response, StreamingResponse) and isinstance(access, Access) and grant.token is not None:
        response.body_iterator = _until_revoked(aiter(response.body_iterator), access, grant)
    return response


async def _until_revoked(chunks: AsyncIterator[Any], access: Access, grant: Grant) -> AsyncIterator[Any]:
    revoked = asyncio.get_running_loop().create_future()
    following: asyncio.Future[Any] | None = None
    try:
        with access.hold(grant, lambda: revoked.set_result(None)):
            while True:
                following = asyncio.ensure_future(anext(chunks, None))
                await asyncio.wait((following, revoked), return_when=asyncio.FIRST_COMPLETED)
                if revoked.done() or following.result() is None:
                    return
                yield following.result()
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await chunks.aclose()  # type: ignore[attr-defined]  # all are generators


async def check_tokens(access: Access) -> None:
    while True:
        await asyncio.sleep(CHECK_S)
        try:
            access.end_revoked()
        except Exception:  # the state cannot be read at present; requests fail meanwhile
            log.warning("token check failed, retried every second", exc_info=True)
