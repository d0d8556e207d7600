"""The shortest way from a socket to the host, and no more of it at a time than others can wait for.

uvicorn hands every frame to the application through a queue and a task, and stops and starts reading around each; and
before that, the WebSocket library takes it apart in a dozen calls. That costs more than all the rest of a report. Here
a connection may be given a sink, which is called with what is in a frame as soon as its last byte has come. Only the
frames that come all the time go this way: whole, binary, not long. All others are the library's, and whatever they
bring goes to the queue, as everything does for whoever asks for no sink. There is such a way out too.

The loop serves every socket that has bytes before it looks at anything else, so a flood would keep readers, the disk
and the clock waiting for as long as it lasts. So bytes are taken in by turns: what is too much for this turn of the
loop waits for the next, and a connection with much that waits is not read meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import apply_mask  # type: ignore[attr-defined]  # in C, where it was built
from websockets.http11 import Request
from websockets.protocol import OPEN

SINK = "countless.sink"  # the extension in the ASGI scope: call it with the sink
VOICE = "countless.voice"  # the same, for payloads to send: False if they must be sent as usual
TROUBLE = "countless.trouble"  # in an event of the queue: what the sink raised
Sink = Callable[[bytes], float]  # returns for how many seconds nothing more is to be read
TURN = 49_152  # bytes in one turn of the loop: a thousand reports, some tens of milliseconds,
SHARE = 16_384  # and of one connection in it; what is in longer frames is not kept until it is whole
WAITING = 4_096  # bytes of one connection that may wait for their turn while more of it is read
_FOR_EVER = 1 << 62
_WHOLE_BINARY = 0x82  # the first byte of a frame that is a whole message, in binary


class Turns:
    """Who may be heard in this turn of the loop, and who waits for the next."""

    def __init__(self) -> None:
        self._left = TURN
        self._announced = False  # that the next turn is to be noticed, which costs a turn: not while few bytes come
        self._waiting: deque[Wire] = deque()

    def allow(self, size: int) -> bool:
        """Whether so many bytes may be taken in now."""
        if self._left <= 0:
            return False
        self._left -= size
        if self._left < TURN // 2 and not self._announced:
            self._announce()
        return True

    def wait(self, wire: "Wire") -> None:
        """In a later turn, please."""
        self._waiting.append(wire)
        if not self._announced:
            self._announce()

    def _announce(self) -> None:
        self._announced = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._left, self._announced = TURN, False
        for _ in range(len(self._waiting)):
            if self._left <= 0:
                break
            self._waiting.popleft().go_on()
        if self._waiting and not self._announced:
            self._announce()


class Wire(WebSocketsSansIOProtocol):
    """uvicorn's connection, with a sink."""

    _turns = Turns()
    _sink: Sink | None = None
    _held = False  # it has sent more than it may
    _queued = False  # it waits for its turn
    _stopped = False  # it is not read
    _rest = b""  # what has come and was not taken in yet
    _passing = _FOR_EVER  # so many bytes are the library's, whatever they are; then a frame begins

    def handle_connect(self, event: Request) -> None:
        """As uvicorn does; the application finds the way to the sink in its scope."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: Any = self.scope["extensions"]
            extensions[SINK], extensions[VOICE] = self._connect_sink, self._say

    def _connect_sink(self, sink: Sink) -> None:
        self._sink = sink

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever knows this connection lets go of it, so that it is not found among the garbage much later."""
        super().connection_lost(exc)
        self._sink, self._rest = None, b""
        if hasattr(self, "scope"):
            extensions: Any = self.scope["extensions"]
            extensions.clear()

    def _say(self, payloads: list[bytes]) -> bool:
        """Whether they were sent. Where anything is in the way, whoever sends as usual will find out what."""
        if self.conn.state is not OPEN or self.close_sent or self.transport.is_closing() or not self.writable.is_set():
            return False
        for payload in payloads:
            self.conn.send_binary(payload)
        self.transport.write(b"".join(self.conn.data_to_send()))
        return True

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if not self.handshake_initiated:
            super().data_received(data)
            if data.endswith(b"\r\n\r\n"):  # it waits for the answer; who cannot wait has no short way
                self._passing = 0
            return
        size, waits = len(data), self._rest or self._passing or self._queued or self._held
        if (
            not waits and 6 <= size < 132 and data[1] == size - 6 + 0x80
        ):  # a short frame with a mask, alone: nearly always
            sink = self._short_way(data[0])
            if sink is not None and self._turns.allow(size):
                self._pour(sink, apply_mask(data[6:], data[2:6]))
                if self._held:
                    self._read_on()
                return
        self._rest += data
        if not (self._queued or self._held):
            self.go_on()

    def go_on(self) -> None:
        """It is this connection's turn."""
        self._queued = False
        if self._held or self.disconnected:
            return
        part = self._rest[:SHARE]
        if part and self._turns.allow(len(part)):
            self._rest = self._rest[self._take(part) :]
            self._queued = len(part) == SHARE and not self._held  # what is left is not just the start of a frame
        else:
            self._queued = bool(part)
        if self._queued:
            self._turns.wait(self)
        self._read_on()

    def _take(self, data: bytes) -> int:
        """How many of these bytes could be taken in: whole frames, and parts of such as are too long to be kept."""
        start, end = 0, len(data)
        while start < end and not self._held:
            if self._passing:
                part = data[start : start + self._passing]
                self._passing -= len(part)
                super().data_received(part)
                start += len(part)
                continue
            body, size = frame_shape(data, start)
            if start + size > end:
                if size <= SHARE:
                    break
                self._passing = size
            elif (sink := self._short_way(data[start])) is not None and body > 5:  # with a mask, as it must be
                self._pour(sink, apply_mask(data[start + body : start + size], data[start + body - 4 : start + body]))
                start += size
            else:
                super().data_received(data[start : start + size])
                start += size
        return start

    def _short_way(self, first: int) -> Sink | None:
        """The sink, if a frame that begins so is a message of its own and nothing that came before it waits."""
        if first != _WHOLE_BINARY or self.conn.current_size is not None or self.conn.state is not OPEN:
            return None
        return None if self.close_sent or not self.queue.empty() else self._sink

    def _pour(self, sink: Sink, payload: bytes) -> None:
        try:
            seconds = sink(payload)
        except Exception as error:  # whoever reads the queue must know; the sink is called no more
            self._sink = None
            trouble: Any = {"type": "websocket.receive", TROUBLE: error}
            self.queue.put_nowait(trouble)
            return
        if seconds > 0:
            self._held = True
            self.loop.call_later(seconds, self._let_go)

    def _let_go(self) -> None:
        self._held = False
        self.go_on()

    def _read_on(self) -> None:
        if self.transport.is_closing():
            return
        if self._held or (self._queued and len(self._rest) > WAITING):
            self._stopped = True
            self.transport.pause_reading()
        elif self._stopped:
            self._stopped = False
            if not self.read_paused:
                self.transport.resume_reading()


def frame_shape(data: bytes, start: int) -> tuple[int, int]:
    """Where the payload of the frame that starts here begins, and the size of it all (RFC 6455, 5.2).

    While that cannot be seen yet: at least one byte more than there is.
    """
    if len(data) < start + 2:
        return 0, 2
    second = data[start + 1]
    body, length = 6 if second & 0x80 else 2, second & 0x7F
    if length >= 126:
        extended = 2 if length == 126 else 8
        body += extended
        if len(data) < start + 2 + extended:
            return body, body
        length = int.from_bytes(data[start + 2 : start + 2 + extended], "big")
    return body, body + length
