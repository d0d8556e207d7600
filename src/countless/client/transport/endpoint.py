"""The network address of one coordinator."""

import os
from typing import NamedTuple
from urllib.parse import urlsplit

from countless.errors import InvalidParameter
from countless.wire.nats_url import netloc

PORT = 2686
_IS_SECURE = {"http": False, "ws": False, "https": True, "wss": True}


class Endpoint(NamedTuple):
    host: str
    port: int
    secure: bool

    @classmethod
    def parse(cls, url: str) -> "Endpoint":
        """From `http://host:port`, `wss://host`, or just `host:port`; anything else is an `InvalidParameter`."""
        allowed = "an address such as http://127.0.0.1:2686"
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            secure, host, port = _IS_SECURE[parts.scheme], parts.hostname, parts.port
        except (KeyError, ValueError, AttributeError, TypeError):
            raise InvalidParameter("url", url, allowed) from None
        if not host or not host.isprintable() or " " in host or parts.path.strip("/") or parts.query or parts.username:
            raise InvalidParameter("url", url, allowed)
        return cls(host, port or (443 if secure else PORT), secure)

    @property
    def netloc(self) -> str:
        return netloc(self.host, self.port)

    @property
    def base(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.netloc}"


def port_hint(endpoint: Endpoint) -> str:
    """For an error: many set COUNTLESS_PORT for `countless serve`, and expect that clients read it."""
    port = os.environ.get("COUNTLESS_PORT", "")
    usual = endpoint == Endpoint("127.0.0.1", PORT, secure=False) and not os.environ.get("COUNTLESS_URL")
    if not usual or not port.isdigit() or int(port) == PORT:
        return ""
    return f" (COUNTLESS_PORT={port} is read by countless serve only: set COUNTLESS_URL=http://127.0.0.1:{port})"
