"""The WebSocket of a site: bytes to items, items to bytes, and a word of explanation for whoever is cut off."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import islice
from time import monotonic

from starlette.websockets import WebSocket, WebSocketDisconnect

from countless.errors import ProtocolError
from countless.server.http.auth import Authenticator, Grant
from countless.server.http.fastpath import SINK, TROUBLE, VOICE
from countless.server.sessions.session_table import Session
from countless.server.sessions.site_server import SiteServer
from countless.server.storage.commit import MAX_QUEUED_ITEMS
from countless.wire.frames import DownItem, Hello, UpItem, decode_up, encode_frames

log = logging.getLogger("countless.socket")

Voice = Callable[[list[bytes]], bool]
_HANDSHAKE = 10.0  # seconds until a connection has said who it is


class SocketLine:
    """An open connection, as the host sees it: sending never waits; what cannot be sent at once, a task writes."""

    def __init__(self, websocket: WebSocket, host: SiteServer) -> None:
        self.last_seen = monotonic()
        self.ignored_counters: set[str] = set()
        self._websocket = websocket
        self._host = host
        self._voice: Voice | None = websocket.scope.get("extensions", {}).get(VOICE)
        self._waiting: deque[DownItem] = deque()
        self._writing = False  # what was taken from the queue is not sent yet
        self._closing: tuple[int, str] | None = None
        self._wake = asyncio.Event()

    def send(self, items: list[DownItem]) -> None:
        """What is to be sent: now, if there is nothing to wait for."""
        if self._voice is not None and not (self._waiting or self._writing or self._closing):
            frames = list(encode_frames(items))
            if self._voice(frames):
                self._host.frame_sent(items, sum(map(len, frames)))
                return
        self._waiting += items
        if len(self._waiting) > MAX_QUEUED_ITEMS:
            self._waiting.clear()
            self.close(1008, "does not read what it is sent")
        self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """Hang up, once what is queued has been sent."""
        self._closing = self._closing or (code, reason)
        self._wake.set()

    async def write(self) -> None:
        """Send what is queued, all that is due in one frame, until it is time to hang up."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._writing = True
            while self._waiting:
                items = list(islice(self._waiting, 1000))
                for _ in items:
                    self._waiting.popleft()
                for frame in encode_frames(items):
                    await self._websocket.send_bytes(frame)
                    self._host.frame_sent(items, len(frame))
            self._writing = False
            if self._closing is not None:
                code, reason = self._closing
                await self._websocket.close(code, reason[:120])
                return


class Intake:
    """From frames to the host, no faster than a site may send: whoever sends more is kept waiting by TCP."""

    __slots__ = ("_host", "_left", "_life", "_line", "_per_second", "_then")

    def __init__(self, host: SiteServer, life: Session, line: SocketLine) -> None:
        self._host, self._life, self._line = host, life, line
        self._per_second = host.settings.max_messages_per_second
        self._left = 4.0 * self._per_second  # a site that comes back says a few words on each of its counters
        self._then = monotonic()

    def take(self, frame: bytes) -> float:
        """How long to wait, in seconds, before more is read."""
        self._host.frame_bytes["up"] += len(frame)
        return self.hear(decode_up(frame), len(frame))

    def hear(self, items: list[UpItem], size: int) -> float:
        """The same for a frame that was read already."""
        self._host.on_frame(self._life, self._line, items, size)
        self._left -= len(items)
        return self._borrow() if self._left < 0 else 0.0

    def _borrow(self) -> float:
        now = monotonic()
        earned = min(4.0 * self._per_second, (now - self._then) * self._per_second)
        self._left, self._then = self._left + earned, now
        seconds = max(0.0, -self._left / self._per_second)
        self._line.last_seen = now + seconds  # it is our doing that the site is not heard
        return seconds


async def site_socket(websocket: WebSocket) -> None:
    """`/api/v1/site`: the connection of one life of one site."""
    host: SiteServer = websocket.app.state.server
    access: Authenticator = websocket.app.state.access
    grant = access.authenticate(websocket)
    if not grant.allows("site"):
        host.dropped["not allowed"] += 1
        return await websocket.close()  # before it was accepted: the answer is 403
    if host.connection_count >= host.settings.max_connections or host.draining:
        host.dropped["too many connections"] += 1
        await websocket.accept()
        return await websocket.close(1013, "no more connections (max_connections)")
    host.connection_count += 1
    try:
        await websocket.accept()
        await _converse(websocket, host, grant)
    finally:
        host.connection_count -= 1


async def _converse(websocket: WebSocket, host: SiteServer, grant: Grant) -> None:
    line = SocketLine(websocket, host)
    writer = asyncio.create_task(line.write())
    try:
        await _read(websocket, host, grant, line)
    except WebSocketDisconnect:
        pass
    except Exception as error:
        await _hang_up(host, line, writer, error)
    finally:
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)


async def _hang_up(host: SiteServer, line: SocketLine, writer: asyncio.Task[None], error: Exception) -> None:
    if isinstance(error, ProtocolError):
        host.dropped["protocol"] += 1
        line.close(1008, str(error))
    elif isinstance(error, TimeoutError):
        host.dropped["no hello"] += 1
        line.close(1008, "a connection begins with a hello")
    else:  # a bug of ours: this site is cut off and will come back; the others go on
        host.dropped["internal"] += 1
        log.error("a site's message could not be handled", exc_info=error)
        line.close(1011, "internal error")
    await asyncio.wait([writer], timeout=_HANDSHAKE)


async def _read(websocket: WebSocket, host: SiteServer, grant: Grant, line: SocketLine) -> None:
    async with asyncio.timeout(_HANDSHAKE):
        frame = await _frame(websocket)
        host.frame_bytes["up"] += len(frame)
        items, size = decode_up(frame), len(frame)
        life = await _introduce(host, grant, line, items)
    if life is None:
        await websocket.receive()  # it has been told that its life is over, and will hang up
        return
    try:
        intake = Intake(host, life, line)
        pause = intake.hear(items[1:], size)
        connect_sink = websocket.scope.get("extensions", {}).get(SINK)
        if connect_sink is not None:  # from now on only what the sink does not take comes to the queue
            connect_sink(intake.take)
        while True:
            await asyncio.sleep(pause)
            pause = intake.take(await _frame(websocket))
    finally:
        host.on_disconnect(life, line)


async def _introduce(host: SiteServer, grant: Grant, line: SocketLine, items: list[UpItem]) -> Session | None:
    if not items or not isinstance(items[0], Hello):
        raise ProtocolError("a connection begins with a hello")
    if grant.site is not None and grant.site != items[0].site:
        raise ProtocolError(f"this token is for site {grant.site!r}")
    return await host.on_hello(line, items[0])


async def _frame(websocket: WebSocket) -> bytes:
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    if TROUBLE in message:  # in the sink
        raise message[TROUBLE]
    data: bytes | None = message.get("bytes")
    if data is None:
        raise ProtocolError("frames are binary")
    return data
