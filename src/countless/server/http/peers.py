"""Who a caller is, for limits on what one caller may use."""

from hashlib import sha256

from starlette.requests import HTTPConnection


def peer_of(caller: HTTPConnection) -> str:
    """Its token, or else its address."""
    token = caller.headers.get("authorization")
    if token:
        return f"token {sha256(token.encode()).hexdigest()[:16]}"
    return f"address {caller.client.host if caller.client else ''}"
