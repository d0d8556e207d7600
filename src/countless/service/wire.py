"""The shortest way from a socket to the host, and no more of it at a time than others can wait for.

uvicorn hands every frame to the application through a queue and a task, and stops and starts reading around each. That
costs more than all the rest of a report. Here a connection may be given a sink, which is called with a frame as soon
as its last byte has come; the queue remains for everything else, and for whoever asks for no sink.

The loop serves every socket that has bytes before it looks at anything else, so a flood would keep readers, the disk
and the clock waiting for as long as it lasts. So bytes for sinks are taken in by turns: what is too much for this turn
of the loop waits for the next, and its connection is not read meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

SINK = "countless.sink"  # the extension in the ASGI scope: call it with the sink
TROUBLE = "countless.trouble"  # in an event of the queue: what the sink raised
Sink = Callable[[bytes], float]  # returns for how many seconds nothing more is to be read
TURN = 16_384  # bytes in one turn of the loop: some hundred reports, some milliseconds


class Turns:
    """Who may be heard in this turn of the loop, and who waits for the next."""

    def __init__(self) -> None:
        self._left = TURN
        self._waiting: deque[Wire] = deque()

    def allow(self, size: int) -> bool:
        """Whether so many bytes may be taken in now. The first of a turn always may."""
        if self._left == TURN:
            asyncio.get_running_loop().call_soon(self._next)
        if self._left <= 0:
            return False
        self._left -= size
        return True

    def wait(self, wire: "Wire") -> None:
        """In a later turn, please."""
        self._waiting.append(wire)

    def _next(self) -> None:
        self._left = TURN
        for _ in range(len(self._waiting)):
            if self._left <= 0:
                break
            self._waiting.popleft().go_on()
        if self._waiting and self._left == TURN:
            asyncio.get_running_loop().call_soon(self._next)


class Wire(WebSocketsSansIOProtocol):
    """uvicorn's connection, with a sink."""

    _turns = Turns()
    _sink: Sink | None = None
    _held = False  # it has sent more than it may
    _rest = b""  # what has come and was not taken in yet

    def handle_connect(self, event: Request) -> None:
        """As uvicorn does; the application finds the way to the sink in its scope."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: Any = self.scope["extensions"]
            extensions[SINK] = self._connect_sink

    def _connect_sink(self, sink: Sink) -> None:
        self._sink = sink

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._sink is None and not self._rest:
            super().data_received(data)
            return
        waits = bool(self._rest)
        self._rest += data
        if not waits and not self._held:
            self.go_on()

    def go_on(self) -> None:
        """It is this connection's turn."""
        if self._held or self.disconnected:
            return
        part, self._rest = self._rest[:TURN], self._rest[TURN:]
        if part and not self._turns.allow(len(part)):
            part, self._rest = b"", part + self._rest
        if part:
            super().data_received(part)
        if self._rest and not self._held:
            self._turns.wait(self)
        self._read_on()

    def _read_on(self) -> None:
        if self.transport.is_closing():
            return
        if self._rest or self._held:
            self.transport.pause_reading()
        elif not self.read_paused:
            self.transport.resume_reading()

    def handle_bytes(self, event: Frame) -> None:
        """A frame has come. One that follows others which still wait in the queue must wait there too."""
        if self._sink is None or not event.fin or self.close_sent or not self.queue.empty():
            super().handle_bytes(event)
            return
        try:
            seconds = self._sink(bytes(event.data))
        except Exception as error:  # whoever reads the queue must know; the sink is called no more
            self._sink = None
            trouble: Any = {"type": "websocket.receive", TROUBLE: error}
            self.queue.put_nowait(trouble)
            return
        if seconds > 0:
            self._hold(seconds)

    def _hold(self, seconds: float) -> None:
        if not self._held:
            self._held = True
            self._read_on()
            self.loop.call_later(seconds, self._let_go)

    def _let_go(self) -> None:
        self._held = False
        self.go_on()
