"""Authentication: bearer tokens with a scope, stored as digests.

| scope | allows |
|---|---|
| `site` | to connect and count; nothing can be read with it |
| `read` | to read answers: estimate, lower, upper, state |
| `operator` | to read everything, metrics and per-site data included, and to change everything |

While there are no tokens, programs on this machine need none, and other callers are rejected. A web page that a
browser on this machine shows is not such a program: see `_is_local`.
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
    scopes: frozenset[str]
    site: str | None = None  # a site token may be bound to one site

    def allows(self, scope: str) -> bool:
        """`operator` includes `read`."""
        return scope in self.scopes or (scope == "read" and "operator" in self.scopes)


class Authenticator(Protocol):
    def authenticate(self, caller: HTTPConnection) -> Grant:
        """What the caller may do; `NOTHING` if it is not known."""


NOTHING = Grant(frozenset())
EVERYTHING = Grant(frozenset(SCOPES))


def digest(token: str) -> bytes:
    """What is stored of a token. A token has 256 random bits, so an unsalted hash cannot be inverted."""
    return sha256(token.encode()).digest()


def new_token(store: TokenStore, scope: str, label: str, site: str | None = None) -> str:
    """Create a token. Only its digest is stored: the returned text cannot be recovered."""
    if scope not in SCOPES:
        raise InvalidParameter("scope", scope, f"one of: {', '.join(SCOPES)}")
    if site is not None and scope != "site":
        raise InvalidParameter("site", site, "given with scope site only")
    token = f"countless-{scope}-{secrets.token_urlsafe(32)}"
    store.add_token(Token(digest(token), scope, site, label, int(time())))
    return token


class Access:
    """Authenticates by token or, while there are no tokens, by the caller's address."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    def authenticate(self, caller: HTTPConnection) -> Grant:
        if "authorization" in caller.headers:
            kind, _, token = caller.headers["authorization"].partition(" ")
            known = self._store.token(digest(token.strip())) if kind.lower() == "bearer" else None
            return Grant(frozenset({known.scope}), known.site) if known else NOTHING
        if not _is_local(caller) or self._store.has_tokens():
            return NOTHING
        return EVERYTHING


def _is_local(caller: HTTPConnection) -> bool:
    """On this machine, and not a web page: those send an `Origin`, or a `Host` that an attacker bound to loopback."""
    try:
        near = caller.client is not None and ip_address(caller.client.host).is_loopback
    except ValueError:
        return False
    forwarded = "x-forwarded-for" in caller.headers or "forwarded" in caller.headers
    named = _LOCAL_NAMES.fullmatch(caller.headers.get("host", "")) is not None
    return near and named and not forwarded and "origin" not in caller.headers
