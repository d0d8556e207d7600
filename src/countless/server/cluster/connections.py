"""The streams of one shard (`wire/nats_subjects.py`): frames of sites go to its site server, replies go to the sites.

A frame that is out of sequence, or sent too fast, closes the stream. The site then opens another and sends its counts
again. Without a lease nothing is received and nothing is sent, because another coordinator may own the shard by now.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from countless.errors import LimitReached, ProtocolError
from countless.server.cluster.nats_connection import NatsConnection
from countless.server.connection import ITEMS_PER_WRITE
from countless.server.frame_reader import MAX_SHORT_BYTES
from countless.server.site_server import SiteServer
from countless.server.storage.base import StoreError
from countless.wire.frames import encode_frames
from countless.wire.nats_subjects import (
    CLOSE,
    MAX_UPLINK_CHARS,
    DataFrame,
    StreamClosed,
    StreamInfo,
    decode_uplink,
    downlink_subject,
    encode_closed,
    encode_data,
    encode_info,
    takeover_subject,
)

log = logging.getLogger("countless.nats")

Publish = Callable[[str, bytes], Awaitable[None]]
_SENDS_PER_YIELD = 100  # about 2 ms: a round start for thousands of sites must not block the loop
_BYTES_PER_YIELD = 16_384  # of short frames


class NatsConnections:
    """All streams of one shard, while this coordinator owns it."""

    def __init__(
        self,
        server: SiteServer,
        shard: int,
        ownership_id: str,
        leased: Callable[[], bool],
        publish: Publish,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._server = server
        self._shard = shard
        self._ownership_id = ownership_id
        self._leased = leased
        self._publish = publish
        self._clock = clock
        self._connections: dict[tuple[str, str], NatsConnection] = {}  # by site token and stream
        self._ready: dict[NatsConnection, None] = {}  # those with something to send, in order
        self._wakeup = asyncio.Event()
        self._bytes_handled = 0  # since the last pause

    # From the sites

    async def on_message(self, subject: str, data: bytes) -> None:
        if not self._leased() or len(subject) > MAX_UPLINK_CHARS:
            return
        site_token, stream = subject.split(".")[3:5]
        connection = self._connections.get((site_token, stream))
        try:
            number, frame = decode_uplink(data)
            if connection is None and number == 0:
                self._open(site_token, stream, frame)
            elif connection is None:
                if data != CLOSE:
                    await self._send_closed(site_token, stream, "unknown stream, send a hello")
            elif connection.closing or connection.ended:
                pass
            elif data == CLOSE:
                self._end(connection)
            elif number == connection.next_number:
                connection.next_number += 1
                self._on_frame(connection, frame)
            else:
                connection.close(1008, "frame lost between the site and the coordinator")
        except Exception as error:
            self._fail(self._connections.get((site_token, stream)), error)
        self._bytes_handled += len(data)
        if self._bytes_handled > _BYTES_PER_YIELD:  # the library has many messages at once, and does not pause
            self._bytes_handled = 0
            await asyncio.sleep(0)

    def _open(self, site_token: str, stream: str, frame: bytes) -> None:
        server = self._server
        connection = NatsConnection(server, site_token, stream, self._clock(), self._mark_ready)
        is_full = server.connections.is_full(connection.peer)
        self._connections[site_token, stream] = connection
        server.connections.add(connection, connection.peer)
        if len(server.connections) > server.settings.max_connections or server.draining:
            server.dropped["too many connections"] += 1
            connection.close(1013, "no more connections (max_connections)")
        elif is_full:
            server.dropped["too many connections"] += 1
            connection.close(1013, "no more connections of this site (max_share of max_connections)")
        else:
            connection.frames.add(frame)
            self._start(connection)

    def _start(self, connection: NatsConnection) -> None:
        connection.task = asyncio.get_running_loop().create_task(self._handle_waiting(connection))

    def _on_frame(self, connection: NatsConnection, frame: bytes) -> None:
        if connection.task is None and len(frame) <= MAX_SHORT_BYTES:
            if connection.reader is not None:  # else the incarnation is retired, and the server has answered so
                connection.reader.on_frame(frame)
            return
        connection.frames.add(frame)
        if connection.task is None:
            self._start(connection)

    async def _handle_waiting(self, connection: NatsConnection) -> None:
        """The hello, and frames that are long or wait for an earlier one. Meanwhile other streams are served."""
        try:
            while connection.frames and not connection.closing:
                if connection.opened:
                    await connection.on_frame(connection.frames.first)
                else:
                    await connection.on_hello(connection.frames.first)
                connection.frames.remove_first()
        except Exception as error:
            self._fail(connection, error)
        connection.task = None
        if connection.ended:
            self._remove(connection)

    def _end(self, connection: NatsConnection) -> None:
        """The site has closed the stream; what it has sent before is handled."""
        connection.ended = True
        if connection.task is None:
            self._remove(connection)

    def _fail(self, connection: NatsConnection | None, error: Exception) -> None:
        if isinstance(error, ProtocolError):
            self._server.dropped["limit reached" if isinstance(error, LimitReached) else "protocol"] += 1
        elif isinstance(error, StoreError):
            self._server.dropped["not saved"] += 1
        else:  # a bug: this stream is closed and the site reconnects; the other sites are not affected
            self._server.dropped["internal"] += 1
            log.error("site frame failed: please report this", exc_info=error)
        if connection is not None:
            connection.close(1008, str(error) if isinstance(error, ProtocolError | StoreError) else "internal error")

    def _remove(self, connection: NatsConnection) -> None:
        key = connection.site_token, connection.stream
        if self._connections.get(key) is connection:
            del self._connections[key]
            self._ready.pop(connection, None)
            self._server.connections.remove(connection)
            connection.drop_frames()
            if connection.session is not None:
                self._server.on_disconnect(connection.session, connection)

    def drop_idle(self) -> None:
        """Close streams without a session. The server times out those that have one."""
        oldest = self._clock() - self._server.settings.silent_after
        for connection in self._connections.values():
            if connection.session is None and connection.opened_at < oldest:
                connection.close(1001, "timed out")

    # To the sites

    def _mark_ready(self, connection: NatsConnection) -> None:
        self._ready[connection] = None
        self._wakeup.set()

    async def announce_takeover(self) -> None:
        """Ask all sites of this shard to open a stream to this owner."""
        await self._publish(takeover_subject(self._shard), self._ownership_id.encode())

    async def run(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            await self.flush()

    async def flush(self) -> None:
        """Send what is queued now. Without a lease it is dropped, and the sites find the gap."""
        ready, self._ready = self._ready, {}
        for number, connection in enumerate(ready, start=1):
            if not self._leased():
                return
            await self._send(connection)
            if number % _SENDS_PER_YIELD == 0:
                await asyncio.sleep(0)

    async def _send(self, connection: NatsConnection) -> None:
        subject = downlink_subject(self._shard, connection.site_token, connection.stream)
        items, connection.queue = connection.queue, []
        if items and not connection.sent:
            await self._publish(subject, encode_info(StreamInfo(self._ownership_id)))
        for start in range(0, len(items), ITEMS_PER_WRITE):
            part = items[start : start + ITEMS_PER_WRITE]
            for frame in encode_frames(part, self._server.tuning.max_frame_bytes):
                connection.sent += 1
                data = encode_data(DataFrame(connection.sent, frame))
                self._server.frame_sent(part, len(data))
                await self._publish(subject, data)
            if len(part) == ITEMS_PER_WRITE:
                await asyncio.sleep(0)
        if connection.close_reason is not None:
            await self._send_closed(connection.site_token, connection.stream, connection.close_reason)
            self._remove(connection)

    async def _send_closed(self, site_token: str, stream: str, reason: str) -> None:
        subject = downlink_subject(self._shard, site_token, stream)
        await self._publish(subject, encode_closed(StreamClosed(reason)))

    async def close(self, reason: str) -> None:
        for connection in list(self._connections.values()):
            connection.drop_frames()
            connection.close(1012, reason)
        await self.flush()

    def debug_state(self) -> dict[str, list[str]]:
        """Open streams by site token."""
        streams: dict[str, list[str]] = {}
        for site_token, stream in self._connections:
            streams.setdefault(site_token, []).append(stream)
        return streams
