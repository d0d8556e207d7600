"""Peers that do not read what they are sent: their connections are closed.

What the system cannot send waits in the memory of this process, and the connection, the response or the stream is not
over before it was sent. asyncio would wait without end.
"""

import asyncio
import logging
import socket
from typing import cast

log = logging.getLogger("countless.http")

UNREAD_TIMEOUT_S = 30.0
MIN_READ_BYTES = 16_384  # in that time
MAX_UNREAD_BYTES = 1 << 20  # of replies to requests that a peer goes on sending, such as pings


class UnreadTimer:
    """Closes the connection if the peer reads too little while it runs. It does not end a peer that reads, however long
    the response is.
    """

    __slots__ = ("_loop", "_timer", "_transport", "_unread")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unread = 0  # when the timer was set
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.cancel()
        self._unread = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(UNREAD_TIMEOUT_S, self._check)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def require_space(self) -> None:
        """Close the connection if it has far too much to send already."""
        if self._timer is not None and self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._abort()

    def _check(self) -> None:
        if self._transport.get_write_buffer_size() > self._unread - MIN_READ_BYTES:
            self._abort()
        else:
            self.start()

    def _abort(self) -> None:
        self.cancel()
        log.info("connection closed: the peer does not read what it is sent")
        self._transport.abort()


class UnreadLimit(asyncio.Protocol):
    """A base of protocols: the timer runs from `pause_writing`, when the transport has more to send than it likes, to
    `resume_writing`.
    """

    loop: asyncio.AbstractEventLoop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._unread = UnreadTimer(cast(asyncio.Transport, transport), self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unread.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.cancel()


def limit_unread(listener: socket.socket) -> None:
    """For connections that are closed already, or have little to send: the system gives them up if the peer does not
    read at all. Connections inherit it from the listener, on Linux.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * UNREAD_TIMEOUT_S))
