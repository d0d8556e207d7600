"""uvicorn's HTTP protocol for the coordinator and the agent, with limits for clients that are slow, or too many.

uvicorn waits without end for a request that has begun. Here a request must be complete within REQUEST_TIMEOUT_S after
its connection was opened or its first byte came, its body included; otherwise the connection is closed. A body that is
longer than any handler accepts closes the connection, too: it would be read and dropped for as long as it comes, after
a refusal as well. A response may take any time: it may be a stream of answers; but it must be read (`unread.py`). An
address may have MAX_CONNECTIONS_PER_ADDRESS connections, without those that became WebSockets: these have limits of
their own.

It reads attributes that uvicorn does not document: `pins.py`.
"""

import asyncio
import logging
from collections import Counter as Tally
from typing import ClassVar

from countless.pins import require_tested

require_tested("uvicorn")
from uvicorn.protocols.http.auto import AutoHTTPProtocol  # noqa: E402

from countless.unread import UnreadLimit  # noqa: E402

log = logging.getLogger("countless.http")

REQUEST_TIMEOUT_S = 20.0
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
MAX_CONNECTIONS_PER_ADDRESS = 4_000  # more than all pages and watches that a proxy forwards


def http_protocol(max_body_bytes: int) -> type[asyncio.Protocol]:
    """For `uvicorn.Config(http=...)`."""
    return type("LimitedHTTPProtocol", (LimitedHTTPProtocol,), {"max_body_bytes": max_body_bytes})


class LimitedHTTPProtocol(UnreadLimit, AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    max_body_bytes: ClassVar[int]
    _open: ClassVar[Tally[str]] = Tally()  # by address
    _body_bytes = 0  # of the request
    _address: str | None = None  # while it is counted there
    _timer: asyncio.TimerHandle | None = None  # while a request is awaited, or incomplete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = self.client[0] if self.client else ""  # a unix socket has none
        if address and self._open[address] >= MAX_CONNECTIONS_PER_ADDRESS:
            log.warning(
                "connection refused, too many of one address: address=%s open=%d", address, MAX_CONNECTIONS_PER_ADDRESS
            )
            self.transport.abort()
            return
        if address:
            self._address = address
            self._open[address] += 1
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        self._limit_body(data, is_new=self.cycle is not before)
        protocol = self.transport.get_protocol()
        if protocol is not self:  # it is a WebSocket now
            self._end()
            if not protocol.handshake_initiated:
                # The WebSocket library was given all of the request and has refused it, as with a body or with very
                # long headers. uvicorn does not ask it, so nothing would ever be sent, read or closed.
                self.transport.write(_BAD_REQUEST)
                self.transport.close()
        elif self._is_complete:
            self._cancel_timer()
        elif self._timer is None and not self.transport.is_closing():
            self._set_timer()

    def _limit_body(self, data: bytes, is_new: bool) -> None:
        """After the response the connection is closed; if there was one already, now."""
        if is_new:
            self._body_bytes = len(data) - data.rfind(b"\r\n\r\n") - 4
        else:
            self._body_bytes += len(data)
        if self.cycle is None or self._body_bytes <= self.max_body_bytes:
            return
        self.cycle.keep_alive = False
        if self.cycle.response_complete and not self.transport.is_closing():
            log.info("connection closed: a body of more than %d bytes", self.max_body_bytes)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    @property
    def _is_complete(self) -> bool:
        """The application works at a request of which everything has arrived."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _set_timer(self) -> None:
        self._timer = self.loop.call_later(REQUEST_TIMEOUT_S, self._close)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            log.info("connection closed: no complete request in %.0f s", REQUEST_TIMEOUT_S)
            self.transport.abort()

    def _end(self) -> None:
        self._cancel_timer()
        self._unread.cancel()
        if self._address is not None:
            self._open[self._address] -= 1
            if not self._open[self._address]:
                del self._open[self._address]
            self._address = None
