"""Streams end when their token is revoked or expires; so do connections of sites (`sockets/websocket.py`)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response, StreamingResponse

from countless.server.http.access.auth import Access, Grant

log = logging.getLogger("countless.tokens")

CHECK_S = 1.0
SAVE_USES_S = 60.0


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
