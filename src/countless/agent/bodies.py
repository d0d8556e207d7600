"""Bodies of requests and answers of the agent's HTTP side."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

MAX_BODY_BYTES = 1 << 18  # about five thousand adds: the loop reads no datagrams for the milliseconds they take

T = TypeVar("T")


class Refused(Exception):
    """A request that changes nothing; the message is the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


async def read_body(request: Request, decode: Callable[[bytes], T], what: str) -> T:
    """Raises `Refused` for a request of a web page, a body that is too long and one that is not `what`."""
    if "origin" in request.headers:
        raise Refused("a web page may not use the agent: a request with an origin is refused", 403)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise Refused(f"body is too long: it must have at most {MAX_BODY_BYTES} bytes", 413)
    try:
        return decode(bytes(body))
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        raise Refused(f"body is no {what}: {problem}") from None


def json(content: object, status: int = 200, **headers: str) -> Response:
    headers = {"cache-control": "no-store", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Response(msgspec.json.encode(content), status, headers, "application/json")
