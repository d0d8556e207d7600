"""uvicorn's WebSocket protocol, with a fast path for short binary frames and a limit on what one loop turn reads. A
peer that does not read what it is sent is disconnected (`unread.py`).

Fast path: the payload of a whole, masked, binary frame of at most MAX_SHORT_BYTES goes to the receiver as soon as its
last byte arrived. All other frames go through the WebSocket library and uvicorn's queue; so does every frame of a
connection without a receiver. The order of messages is kept: while the queue is not empty, nothing takes the fast path.

Limit: the event loop serves every readable socket before it does anything else, so a flood from many sites would delay
readers, commits and timers for as long as it lasts. ReadScheduler grants LOOP_BYTES in one turn of the loop. What is
too much waits in the connection's buffer for a later turn, and a connection with a long buffer is not read meanwhile.

Memory: what a connection holds, of messages that are incomplete or wait to be read, is added up for its peer (`Hold`).
A message has at most MAX_FRAGMENTS parts, because each has a cost beside its bytes.

It builds on a class that uvicorn does not document (`pins.py`). design/decisions/libraries.md has the processor time
that each part of it saves.
"""

import asyncio
from collections import deque
from typing import Any

from countless.errors import LimitReached, ProtocolError
from countless.pins import require_tested
from countless.server.frame_reader import ERROR, HOLD, MAX_SHORT_BYTES, RECEIVER, Hold, Receiver
from countless.unread import UnreadLimit

require_tested("uvicorn", "websockets")
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol  # noqa: E402
from websockets.frames import Frame, apply_mask  # type: ignore[attr-defined]  # noqa: E402  # in C, if it was built
from websockets.http11 import Request  # noqa: E402
from websockets.protocol import OPEN  # noqa: E402

LOOP_BYTES = 49_152  # in one turn of the loop: a thousand reports, some tens of milliseconds
CONNECTION_BYTES = 16_384  # of one connection in one turn
MAX_BUFFERED_BYTES = 4_096  # of one connection: with more, it is not read until its turn
MAX_FRAGMENTS = 100  # of one message
CLOSE_S = 0.2  # for the application to send the reason to a connection that is refused
_ALL_BYTES = 1 << 62
_WHOLE_BINARY = 0x82  # first byte of a frame: final, no extension bits, binary


class ReadScheduler:
    """Grants bytes to connections, at most LOOP_BYTES in one turn of the loop; the others wait in a queue."""

    def __init__(self) -> None:
        self._left = LOOP_BYTES
        self._refill_pending = False
        self._waiting: deque[FastWebSocketProtocol] = deque()

    def allow(self, size: int) -> bool:
        if self._left <= 0:
            return False
        self._left -= size
        if self._left < LOOP_BYTES // 2:  # with little traffic a refill in every turn would cost more than it helps
            self._schedule_refill()
        return True

    def wait(self, connection: "FastWebSocketProtocol") -> None:
        """Resume the connection in a later turn."""
        self._waiting.append(connection)
        self._schedule_refill()

    def _schedule_refill(self) -> None:
        if not self._refill_pending:
            self._refill_pending = True
            asyncio.get_running_loop().call_soon(self._refill)

    def _refill(self) -> None:
        self._left, self._refill_pending = LOOP_BYTES, False
        for _ in range(len(self._waiting)):
            if self._left <= 0:
                break
            self._waiting.popleft().resume()
        if self._waiting:
            self._schedule_refill()


class FastWebSocketProtocol(UnreadLimit, WebSocketsSansIOProtocol):
    _scheduler = ReadScheduler()
    _receiver: Receiver | None = None
    _buffer = b""  # received and not handled yet
    _passthrough_bytes = _ALL_BYTES  # so many bytes go to the library without a look at them; then a frame begins
    _throttled = False  # the receiver asked for a pause
    _queued = False  # waits in the scheduler
    _paused = False  # the socket is not read
    _hold: Hold | None = None
    _held = 0  # bytes, as `_hold` knows it
    _unread_bytes = 0  # that the library has, of messages that are incomplete or not read yet
    _refused = False

    def handle_ping(self) -> None:
        super().handle_ping()
        self._unread.require_space()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: Any = self.scope["extensions"]
            extensions[RECEIVER] = self._set_receiver
            extensions[HOLD] = self._set_hold

    def _set_receiver(self, receiver: Receiver | None) -> None:
        self._receiver = receiver

    def _set_hold(self, hold: Hold) -> None:
        self._hold = hold
        self._count_held()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # No reference cycle may remain: with 10,000 connections the garbage collector takes more than a second.
        self._receiver = None
        self._release()
        if hasattr(self, "scope"):
            extensions: Any = self.scope["extensions"]
            extensions.clear()

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
            if data.endswith(b"\r\n\r\n"):  # a client that sends frames before the handshake ends has no fast path
                self._passthrough_bytes = 0
            return
        if self._refused:
            return
        self._buffer += data
        if self._queued or self._throttled:
            self._count_held()
        else:
            self.resume()

    async def receive(self) -> Any:
        event = await super().receive()
        self._count_held()
        return event

    def handle_cont(self, event: Frame) -> None:
        super().handle_cont(event)
        if len(self.frames) > MAX_FRAGMENTS:
            self._refuse(ProtocolError(f"a message in more than {MAX_FRAGMENTS} parts"))

    def _count_held(self) -> None:
        if self._unread_bytes and not self._passthrough_bytes and not self.frames and self.queue.empty():
            self._unread_bytes = 0
        held = len(self._buffer) + self._unread_bytes
        if self._hold is not None and held != self._held:
            has_room, grows, self._held = self._hold(held - self._held), held > self._held, held
            if grows and not has_room:
                self._refuse(LimitReached("too many incomplete messages of this token (max_partial_mb)"))

    def _refuse(self, error: Exception) -> None:
        """The application closes the connection. It is not waited for that the peer does so, too: what it has sent
        takes memory, and is in no sum any more.
        """
        if not self._refused:
            self._refused = True
            self._report(error)
            self._release()
            self.loop.call_later(CLOSE_S, self.transport.close)

    def _release(self) -> None:
        self._buffer = b""
        if self._hold is not None:
            self._hold(-self._held)
        self._hold = None

    def _report(self, error: Exception) -> None:
        """The application gets it from its queue, and the receiver no further frame."""
        self._receiver = None
        event: Any = {"type": "websocket.receive", ERROR: error}
        self.queue.put_nowait(event)

    def resume(self) -> None:
        """Handle what is in the buffer, as far as the scheduler allows."""
        self._queued = False
        if self._throttled or self.disconnected or self._refused:
            return
        part = self._buffer[:CONNECTION_BYTES]
        if part and self._scheduler.allow(len(part)):
            self._buffer = self._buffer[self._handle(part) :]
            self._queued = len(part) == CONNECTION_BYTES and not self._throttled  # else the rest is an incomplete frame
        else:
            self._queued = bool(part)
        if self._queued:
            self._scheduler.wait(self)
        if self._queued or self._throttled or self._paused:
            self._pause_or_resume_reading()
        self._count_held()

    def _handle(self, data: bytes) -> int:
        """Handle whole frames, and parts of frames that are too long to be buffered; returns the bytes handled."""
        start, end = 0, len(data)
        while start < end and not self._throttled and not self._refused:
            if self._passthrough_bytes:
                part = data[start : start + self._passthrough_bytes]
                self._passthrough_bytes -= len(part)
                self._unread_bytes += len(part)
                super().data_received(part)
                start += len(part)
                continue
            offset, size = frame_extent(data, start)
            if start + size > end:
                if size <= CONNECTION_BYTES:
                    break
                self._passthrough_bytes = size
                continue
            receiver = self._fast_path(data[start]) if size <= MAX_SHORT_BYTES else None
            if receiver is not None and offset > 5:  # masked, as frames of a client must be
                payload = start + offset
                self._deliver(receiver, apply_mask(data[payload : start + size], data[payload - 4 : payload]))
            else:
                self._unread_bytes += size
                super().data_received(data[start : start + size])
            start += size
        return start

    def _fast_path(self, first: int) -> Receiver | None:
        """The receiver, if a frame with this first byte is a message of its own and no earlier message is queued."""
        if first != _WHOLE_BINARY or self.conn.current_size is not None or self.conn.state is not OPEN:
            return None
        return None if self.close_sent or not self.queue.empty() else self._receiver

    def _deliver(self, receiver: Receiver, payload: bytes) -> None:
        try:
            pause_s = receiver(payload)
        except Exception as error:
            self._report(error)
            return
        if pause_s > 0:
            self._throttled = True
            self.loop.call_later(pause_s, self._unthrottle)

    def _unthrottle(self) -> None:
        self._throttled = False
        self.resume()

    def _pause_or_resume_reading(self) -> None:
        if self.transport.is_closing():
            return
        if self._throttled or (self._queued and len(self._buffer) > MAX_BUFFERED_BYTES):
            self._paused = True
            self.transport.pause_reading()
        elif self._paused:
            self._paused = False
            if not self.read_paused:
                self.transport.resume_reading()


def frame_extent(data: bytes, start: int) -> tuple[int, int]:
    """Offset of the payload in the frame that begins at `start`, and the size of the frame (RFC 6455, 5.2).

    While the header is incomplete, the size is at least one byte more than there is.
    """
    if len(data) < start + 2:
        return 0, 2
    second = data[start + 1]
    offset, length = 6 if second & 0x80 else 2, second & 0x7F
    if length >= 126:
        extended = 2 if length == 126 else 8
        offset += extended
        if len(data) < start + 2 + extended:
            return offset, offset
        length = int.from_bytes(data[start + 2 : start + 2 + extended], "big")
    return offset, offset + length
