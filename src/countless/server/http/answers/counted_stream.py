"""Streams of events that use a part of a limit while they are open."""

from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from countless.server.sessions.shares import Shares


class CountedStream(StreamingResponse):
    """Counted from its call on, and not from its first event: of many requests that arrive together, all would be let
    in before the first is counted.
    """

    def __init__(self, events: AsyncIterator[bytes], shares: Shares[object], peer: str) -> None:
        super().__init__(events, 200, {"cache-control": "no-store", "x-accel-buffering": "no"}, "text/event-stream")
        self._shares = shares
        self._peer = peer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._shares.add(self, self._peer)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._shares.remove(self)
