"""The address of a caller behind a reverse proxy on this machine: the last one in `X-Forwarded-For`.

A proxy may pass on what its caller wrote there. So only an IP address is taken, which is all that logs, limits and the
page can get from it; otherwise the caller has the address of the proxy.
"""

from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send


class ForwardedAddress:
    """ASGI middleware: sets `client`, if the connection comes from loopback."""

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
