"""Who a caller is, for limits on what one caller may use."""

from starlette.requests import HTTPConnection

from countless.server.http.access.auth import Grant


def peer_of(caller: HTTPConnection, grant: Grant) -> str:
    """Its token, or else its address. Not the header: one token can be written in several ways."""
    if grant.token is not None:
        return f"token {grant.token.hex()[:16]}"
    return f"address {caller.client.host if caller.client else ''}"
