"""The network address of one coordinator, and the token for it: from a call, or from the environment."""

import os
import ssl
from http.client import RemoteDisconnected
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from countless.errors import InvalidParameter
from countless.token_file import local_token, read_token, usable
from countless.wire.nats_url import netloc

PORT = 2686
_CERTIFICATE_REMEDIES = {  # by the codes of OpenSSL
    9: "set the clocks of both machines",  # not yet valid
    10: "renew it on the coordinator's machine",  # expired
    62: "use a name that it is for, or make one for this name",
    64: "use an address that it is for, or make one for this address",
}
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
        beyond = parts.path.strip("/") or parts.query or parts.fragment or parts.username
        if not host or not host.isprintable() or " " in host or beyond:
            raise InvalidParameter("url", url, allowed)
        return cls(host, port or (443 if secure else PORT), secure)

    @property
    def netloc(self) -> str:
        return netloc(self.host, self.port)

    @property
    def base(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.netloc}"


def no_coordinator(endpoint: Endpoint, where: str, error: Exception) -> str:
    """For an error: why there is no connection to the coordinator, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _CERTIFICATE_REMEDIES.get(error.verify_code, "name the authority that signed it in COUNTLESS_CA")
        return f"the certificate of {where} is not accepted: {error.verify_message}: {remedy}"
    hint = port_hint(endpoint)
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        hint = " (it does not use TLS: does its address begin with http://?)"
    elif isinstance(error, RemoteDisconnected | ConnectionResetError) and not endpoint.secure:
        hint = " (if it uses TLS, its address begins with https://)"
    elif isinstance(error, ConnectionRefusedError):
        return f"no coordinator at {where}: connection refused{hint}"
    return f"no coordinator at {where}: {error}{hint}"


def port_hint(endpoint: Endpoint) -> str:
    """For an error: many set COUNTLESS_PORT for `countless serve`, and expect that clients read it."""
    port = os.environ.get("COUNTLESS_PORT", "")
    usual = endpoint == Endpoint("127.0.0.1", PORT, secure=False) and not os.environ.get("COUNTLESS_URL")
    if not usual or not port.isdigit() or int(port) == PORT:
        return ""
    return f" (COUNTLESS_PORT={port} is read by countless serve only: set COUNTLESS_URL=http://127.0.0.1:{port})"


DEFAULT_URL = f"http://127.0.0.1:{PORT}"


def url_or_default(url: str | None) -> str:
    return url or os.environ.get("COUNTLESS_URL") or DEFAULT_URL


def token_for(endpoint: Endpoint, token: str | None = None) -> str | None:
    """The token to send: the given one, else `COUNTLESS_TOKEN`, else what is in the file `COUNTLESS_TOKEN_FILE`, else,
    for a coordinator on this machine, the operator's token from its state directory, if this user may read it and no
    other user listens on the port.

    Call it for each connection: a file may have a new token. Raises InvalidParameter if a token cannot be used.
    """
    return find_token(endpoint, token)[0]


def find_token(endpoint: Endpoint, token: str | None = None) -> tuple[str | None, str]:
    """The token as `token_for` has it, and where it was, for errors."""
    variable, file = os.environ.get("COUNTLESS_TOKEN"), os.environ.get("COUNTLESS_TOKEN_FILE")
    if token and token != variable:
        return usable(token), "the one that was given"
    if variable:
        return usable(variable), "the one in COUNTLESS_TOKEN"
    if file:
        return read_token(file), f"the one in {file} (COUNTLESS_TOKEN_FILE)"
    found = local_token(endpoint.port) if is_loopback(endpoint.host) else None
    return (None, "") if found is None else (found[0], f"the one in {found[1]}")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
