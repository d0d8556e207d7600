"""What is not given in a call comes from the environment."""

import os
from ipaddress import ip_address

from countless.client.transport.endpoint import PORT, Endpoint
from countless.token_file import local_token, read_token, usable

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
