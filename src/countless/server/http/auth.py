"""Who may do what: bearer tokens with a scope, kept as digests (SPEC section 8).

| scope | may |
|---|---|
| `site` | connect and count; nothing can be read with it |
| `read` | read answers: estimate, lower, upper, state - what the public may know |
| `operator` | everything that is read, metrics and per-site data included, and every change |

As long as there is no token, programs on this machine may do everything, and nobody else may do anything. A web page
that a browser on this machine shows is not such a program: see `_is_local`.
"""

import re
import secrets
from hashlib import sha256
from ipaddress import ip_address
from time import time
from typing import NamedTuple, Protocol

from starlette.requests import HTTPConnection

from countless.errors import InvalidParameter
from countless.server.storage.base import Token, TokenStore

SCOPES = ("site", "read", "operator")
_LOCAL_NAMES = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")


class Grant(NamedTuple):
    """What a caller may do."""

    scopes: frozenset[str]
    site: str | None = None  # a site token may be for one site only

    def allows(self, scope: str) -> bool:
        """Operators may read what the public may read."""
        return scope in self.scopes or (scope == "read" and "operator" in self.scopes)


class Authenticator(Protocol):
    def authenticate(self, caller: HTTPConnection) -> Grant: ...


NOTHING = Grant(frozenset())
EVERYTHING = Grant(frozenset(SCOPES))


def digest(token: str) -> bytes:
    """What is kept of a token. It has 256 random bits, so a plain hash cannot be turned round."""
    return sha256(token.encode()).digest()


def new_token(store: TokenStore, scope: str, label: str, site: str | None = None) -> str:
    """A fresh token; it is shown this once and never again."""
    if scope not in SCOPES:
        raise InvalidParameter("scope", scope, f"one of: {', '.join(SCOPES)}")
    if site is not None and scope != "site":
        raise InvalidParameter("site", site, "given with scope site only")
    token = f"countless-{scope}-{secrets.token_urlsafe(32)}"
    store.add_token(Token(digest(token), scope, site, label, int(time())))
    return token


class Access:
    """Grants by token, or by coming from this machine while there are none."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    def authenticate(self, caller: HTTPConnection) -> Grant:
        """What this caller may do."""
        if "authorization" in caller.headers:
            kind, _, token = caller.headers["authorization"].partition(" ")
            known = self._store.token(digest(token.strip())) if kind.lower() == "bearer" else None
            return Grant(frozenset({known.scope}), known.site) if known else NOTHING
        if not _is_local(caller) or self._store.has_tokens():
            return NOTHING
        return EVERYTHING


def _is_local(caller: HTTPConnection) -> bool:
    """From this machine, and not from a web page: those come with an `Origin`, or under a name somebody rebound."""
    try:
        near = caller.client is not None and ip_address(caller.client.host).is_loopback
    except ValueError:
        return False
    forwarded = "x-forwarded-for" in caller.headers or "forwarded" in caller.headers
    named = _LOCAL_NAMES.fullmatch(caller.headers.get("host", "")) is not None
    return near and named and not forwarded and "origin" not in caller.headers
