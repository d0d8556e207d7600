"""`/api/v1/site`: the WebSocket of a site. Frames become calls of the `SiteServer`, its items become frames."""

import asyncio
import logging
from collections import deque
from functools import partial
from itertools import islice

from starlette.websockets import WebSocket, WebSocketDisconnect

from countless.errors import LimitReached, ProtocolError
from countless.server.connection import ITEMS_PER_WRITE
from countless.server.frame_reader import ERROR, HOLD, RECEIVER, FrameReader
from countless.server.http.access.auth import Access, Grant, peer_of
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import UNLIMITED
from countless.server.site_server import SiteServer
from countless.server.storage.base import StoreError
from countless.server.storage.commit import MAX_QUEUED_ITEMS
from countless.wire.frames import DownItem, Hello, UpItem, decode_up, encode_frames

log = logging.getLogger("countless.websocket")

HELLO_TIMEOUT_S = 10.0
MAX_REASON_CHARS = 120  # a WebSocket close frame has room for 123 bytes


class SocketConnection:
    """An open connection for the site server: `send` queues, and the `write` task sends."""

    def __init__(self, websocket: WebSocket, server: SiteServer) -> None:
        self._websocket = websocket
        self._server = server
        self._queue: deque[DownItem] = deque()
        self._closing: tuple[int, str] | None = None
        self._wakeup = asyncio.Event()

    def send(self, items: list[DownItem]) -> None:
        self._queue += items
        if len(self._queue) > MAX_QUEUED_ITEMS:
            self._queue.clear()
            self.close(1008, "does not read what it is sent")
        self._wakeup.set()

    def close(self, code: int, reason: str) -> None:
        """Close once what is queued was sent. The first code and reason count."""
        self._closing = self._closing or (code, reason)
        self._wakeup.set()

    @property
    def closing(self) -> bool:
        return self._closing is not None

    async def write(self) -> None:
        """Send what is queued, as many items in a frame as fit, until `close` is called."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._queue:
                items = list(islice(self._queue, ITEMS_PER_WRITE))
                for _ in items:
                    self._queue.popleft()
                for frame in encode_frames(items):
                    await self._websocket.send_bytes(frame)
                    self._server.frame_sent(items, len(frame))
            if self._closing is not None:
                code, reason = self._closing
                await self._websocket.close(code, reason[:MAX_REASON_CHARS])
                return


async def site_socket(websocket: WebSocket) -> None:
    server: SiteServer = websocket.app.state.server
    access: Access = websocket.app.state.access
    grant = access.authenticate(websocket)
    if not grant.allows("site"):
        server.dropped["not allowed"] += 1
        server.refused.add(_address(websocket), access.why_refused(websocket))
        return await websocket.close()  # before `accept`: the client sees status 403
    if len(server.connections) >= server.settings.max_connections or server.draining:
        server.dropped["too many connections"] += 1
        server.refused.add(_address(websocket), "too many connections (max_connections)")
        await websocket.accept()
        return await websocket.close(1013, "no more connections (max_connections)")
    peer = UNLIMITED if grant.allows("operator") else peer_of(websocket, grant)
    if server.connections.is_full(peer):
        server.dropped["too many connections"] += 1
        server.refused.add(_address(websocket), "too many connections of one token (max_share of max_connections)")
        await websocket.accept()
        return await websocket.close(1013, "no more connections of this token (max_share of max_connections)")
    server.connections.add(websocket, peer)
    set_hold = websocket.scope.get("extensions", {}).get(HOLD)
    if set_hold is not None:
        set_hold(partial(server.partial_bytes.take, peer))
    try:
        await websocket.accept()
        await _serve(websocket, server, access, grant, peer)
    finally:
        server.connections.remove(websocket)


def _address(websocket: WebSocket) -> str:
    return websocket.client.host if websocket.client else "unknown"


class TokenEnded(Exception):
    """It was revoked, or has expired."""


async def _serve(websocket: WebSocket, server: SiteServer, access: Access, grant: Grant, peer: str) -> None:
    connection = SocketConnection(websocket, server)
    writer = asyncio.create_task(connection.write())
    scope = asyncio.timeout(None)
    try:
        with access.hold(grant, lambda: scope.reschedule(0)):
            async with scope:
                await _read(websocket, server, grant, peer, connection)
    except WebSocketDisconnect:
        pass
    except Exception as error:
        if isinstance(error, LimitReached):
            server.refused.add(_address(websocket), str(error))
        _close_with_reason(server, connection, TokenEnded() if scope.expired() else error)
        await asyncio.wait([writer], timeout=HELLO_TIMEOUT_S)
    finally:
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)


def _close_with_reason(server: SiteServer, connection: SocketConnection, error: Exception) -> None:
    if isinstance(error, ProtocolError):
        server.dropped["limit reached" if isinstance(error, LimitReached) else "protocol"] += 1
        connection.close(1008, str(error))
    elif isinstance(error, TokenEnded):
        server.dropped["not allowed"] += 1
        connection.close(1008, "the token was revoked, or has expired")
    elif isinstance(error, TimeoutError):
        server.dropped["no hello"] += 1
        connection.close(1008, "a connection begins with a hello")
    elif isinstance(error, StoreError):
        server.dropped["not saved"] += 1
        reason = "saved" if server.failing else "read"
        if not server.failing:
            log.error("site refused, state not readable: error=%s", error)
        connection.close(1013, f"the state cannot be {reason} at present: see the log of the coordinator")
    else:  # a bug: this site is disconnected and will reconnect; the others are not affected
        server.dropped["internal"] += 1
        log.error("site frame failed: please report this", exc_info=error)
        connection.close(1011, "internal error")


async def _read(
    websocket: WebSocket, server: SiteServer, grant: Grant, peer: str, connection: SocketConnection
) -> None:
    async with asyncio.timeout(HELLO_TIMEOUT_S):
        frame = await _receive(websocket)
        first = decode_up(frame)[:1]  # no more of them: they take memory while the answer is waited for
        session = await _open_session(server, grant, peer, connection, first, _address(websocket))
        if session is None:
            await websocket.receive()  # the client was told that its incarnation is retired, and disconnects
            return
    set_receiver = websocket.scope.get("extensions", {}).get(RECEIVER, lambda receiver: None)
    try:
        reader = FrameReader(server, session, connection)
        pause_s = await reader.in_slices(frame, first=1)
        while True:
            set_receiver(reader.on_frame)  # from now on only frames that do not take the fast path come from `receive`
            del frame  # a long one takes memory while the next is waited for
            await asyncio.sleep(pause_s)
            frame = await _receive(websocket)
            set_receiver(None)  # no later frame may overtake the rest of this one
            pause_s = await reader.in_slices(frame)
    finally:
        set_receiver(None)
        server.on_disconnect(session, connection)


async def _open_session(
    server: SiteServer, grant: Grant, peer: str, connection: SocketConnection, items: list[UpItem], address: str
) -> Session | None:
    if not items or not isinstance(items[0], Hello):
        raise ProtocolError("a connection begins with a hello")
    if grant.site is not None and grant.site != items[0].site:
        server.refused.add(address, f"its token is for site {grant.site}")
        raise ProtocolError(f"this token is for site {grant.site!r}")
    return await server.on_hello(connection, items[0], peer)


async def _receive(websocket: WebSocket) -> bytes:
    """The next binary frame. Raises what the receiver raised on the fast path."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    if ERROR in message:
        raise message[ERROR]
    data: bytes | None = message.get("bytes")
    if data is None:
        raise ProtocolError("frames are binary")
    return data
