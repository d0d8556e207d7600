"""The public answer of a counter: as one object, and as a stream of server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from countless.core.answer import Threshold, Verdict, whole
from countless.errors import InvalidParameter
from countless.server.http.access.auth import peer_of
from countless.server.http.api.openapi import error
from countless.server.http.api.schemas import PublicAnswer
from countless.server.sessions.readable import Readable
from countless.server.sessions.shares import Shares
from countless.server.storage.health import SaveHealth
from countless.wire.frames import MAX_NUMBER

WATCH_HEARTBEAT_S = 15.0  # a reader that receives nothing for three of these has lost the connection
HEARTBEAT = b": heartbeat\n\n"  # a comment, which readers of events ignore


def public_view(counter: Readable) -> PublicAnswer:
    answer = counter.published_answer
    per = None if counter.windows is None else counter.windows.calendar.per
    numbers = whole(answer.estimate, *answer.bounds)
    return PublicAnswer(counter.name, *numbers, answer.state, as_of(counter.health), per)


def as_of(health: SaveHealth) -> str:
    """The time of reading, never that of a report; while nothing can be saved, until when everything is."""
    return (datetime.now(UTC) - timedelta(seconds=health.behind_s)).isoformat(timespec="milliseconds")


def event_stream(request: Request, answers: AsyncIterator[PublicAnswer], threshold: Threshold | None) -> Response:
    """A stream of answers, unless too many are open: in all, or of this caller."""
    watches: Shares[object] = request.app.state.watches
    grant = request.app.state.access.authenticate(request)
    most, peer = request.app.state.server.settings.max_watches, peer_of(request, grant)
    if len(watches) >= most or watches.is_full(peer):
        return error(f"too many watches are open (max_watches: {most}, and {watches.most} for one token)", 503)
    return CountedStream(server_sent_events(answers, threshold), watches, peer)


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


async def server_sent_events(answers: AsyncIterator[PublicAnswer], threshold: Threshold | None) -> AsyncIterator[bytes]:
    """`answer` for each of them; with a threshold also `possibly` and `certainly`, once each; and heartbeats."""
    last: Verdict | None = None
    waiting = asyncio.ensure_future(_next(answers))
    try:
        while True:
            if not (await asyncio.wait([waiting], timeout=WATCH_HEARTBEAT_S))[0]:
                yield HEARTBEAT
                continue
            answer = waiting.result()
            if answer is None:
                return
            verdicts = threshold.new_verdicts(last, answer.lower, answer.upper) if threshold else ()
            last = verdicts[-1] if verdicts else last
            for event in ("answer", *verdicts):
                yield encode_event(event, answer)
            waiting = asyncio.ensure_future(_next(answers))
    finally:
        waiting.cancel()


async def _next(answers: AsyncIterator[PublicAnswer]) -> PublicAnswer | None:
    return await anext(answers, None)


def encode_event(event: str, data: object) -> bytes:
    """One server-sent event; JSON as msgspec writes it has no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), msgspec.json.encode(data))


def parse_threshold(over: str | None) -> Threshold | None:
    if over is None:
        return None
    digits = over.isascii() and over.isdecimal() and len(over) <= len(str(MAX_NUMBER))
    if not digits or int(over) > MAX_NUMBER:
        raise InvalidParameter("over", over[:100], "an integer from 0 to 2^255 - 1")
    return Threshold(int(over))
