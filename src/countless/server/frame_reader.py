"""Passes the frames of one session to the site server, long ones in slices, with WebSockets and with NATS."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from countless.server.connection import Connection, RateLimit
from countless.server.sessions.session_table import Session
from countless.server.site_server import SiteServer
from countless.wire.frames import UpItem, decode_up

MAX_SHORT_BYTES = 4_096  # of a frame: its items are handled in one go, at most some tens of milliseconds
# Of a longer frame, in one turn of the loop: 5 ms, if each of them begins a counter. A save, or a heartbeat, behind a
# broker takes ten turns.
ITEMS_PER_SLICE = 50

# An ASGI extension by which the fast path (`http/sockets/fast_websocket.py`) hands payloads over without a queue

Receiver = Callable[[bytes], float]  # takes a payload; returns for how many seconds nothing more is to be read
RECEIVER = "countless.receiver"  # in scope["extensions"]: a function that takes the Receiver, or None at the end
# In scope["extensions"]: a function that takes a Hold. What a connection holds, of messages that are incomplete or not
# read yet, is told to it as it changes; if it returns False, the connection is closed.
Hold = Callable[[int], bool]
HOLD = "countless.hold"
ERROR = "countless.error"  # in a `websocket.receive` event: what the receiver raised


class ClosableConnection(Connection, Protocol):
    @property
    def closing(self) -> bool:
        """True if `close` was called."""


class FrameReader:
    """Most methods return for how many seconds nothing more is to be read, because of `max_messages_per_second`."""

    __slots__ = ("_connection", "_rate_limit", "_server", "_session")

    def __init__(self, server: SiteServer, session: Session, connection: ClosableConnection) -> None:
        self._server, self._session, self._connection = server, session, connection
        self._rate_limit = RateLimit(server.settings.max_messages_per_second, server.now)

    def on_frame(self, frame: bytes, first: int = 0) -> float:
        """The items from `first` on, in one go."""
        self._server.frame_bytes["up"] += len(frame)
        items = decode_up(frame, self._server.tuning.max_frame_bytes)
        return self.on_items(items[first:] if first else items, len(frame))

    def on_items(self, items: list[UpItem], size: int) -> float:
        self._server.on_frame(self._session, self._connection, items, size)
        seconds = self._rate_limit.take(len(items))
        if seconds:
            self._session.last_seen = self._server.now() + seconds  # the site must not time out while it is not read
        return seconds

    async def in_slices(self, frame: bytes, first: int = 0) -> float:
        """As `on_frame`, for a frame of any length. It may have 80,000 items, which take seconds: other work of the
        loop comes in between. Decoded items take much memory, so there is one long frame at a time, peers take turns,
        and the pause is at the end.
        """
        if len(frame) <= MAX_SHORT_BYTES:
            return self.on_frame(frame, first)
        self._server.frame_bytes["up"] += len(frame)
        seconds = 0.0
        async with self._server.long_frames.turn(self._session.peer):
            items = decode_up(frame, self._server.tuning.max_frame_bytes)
            for start in range(first, len(items), ITEMS_PER_SLICE):
                if self._connection.closing:  # also if another connection has replaced it
                    break
                part = items[start : start + ITEMS_PER_SLICE]
                seconds = self.on_items(part, len(frame) * len(part) // len(items))
                await asyncio.sleep(0)
        return seconds
