"""The streams of one shard (`wire/nats_subjects.py`): frames of sites go to its site server, replies go to the sites.

A frame that is out of sequence, or sent too fast, closes the stream. The site then opens another and sends its counts
again. Without a lease nothing is received and nothing is sent, because another coordinator may own the shard by now.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from countless.errors import LimitReached, ProtocolError
from countless.server.rate_limit import RateLimit
from countless.server.sessions.session_table import Session
from countless.server.sessions.site_server import SiteServer
from countless.server.storage.base import StoreError
from countless.wire.frames import DownItem, Hello, UpItem, decode_up, encode_frames
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
    subject_token,
    takeover_subject,
)

log = logging.getLogger("countless.nats")

Publish = Callable[[str, bytes], Awaitable[None]]
_MAX_FRAMES_BEFORE_HELLO = 1000
_SENDS_PER_YIELD = 100  # about 2 ms: a round start for thousands of sites must not block the loop


class NatsConnection:
    """One stream, as the server sees it. Sending only queues."""

    def __init__(
        self,
        site_token: str,
        stream: str,
        opened_at: float,
        rate_limit: RateLimit,
        on_queued: Callable[["NatsConnection"], None],
    ) -> None:
        self.opened_at = opened_at
        self.site_token = site_token
        self.stream = stream
        self.session: Session | None = None  # None until the server has accepted the hello
        self.before_hello: list[bytes] = []  # frames that arrived before that
        self.close_reason: str | None = None
        self.rate_limit = rate_limit
        self.next_number = 1  # of the next frame from the site; the hello had 0
        self.sent = 0
        self.queue: list[DownItem] = []
        self._on_queued = on_queued

    def send(self, items: list[DownItem]) -> None:
        self.queue += items
        self._on_queued(self)

    def close(self, code: int, reason: str) -> None:
        """Once the queue has been sent. The code is that of a WebSocket; NATS has none."""
        self.close_reason = self.close_reason or reason
        self._on_queued(self)


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
        self._hello_tasks: set[asyncio.Task[None]] = set()

    # From the sites

    async def on_message(self, subject: str, data: bytes) -> None:
        if not self._leased() or len(subject) > MAX_UPLINK_CHARS:
            return
        site_token, stream = subject.split(".")[3:5]
        connection = self._connections.get((site_token, stream))
        try:
            number, frame = decode_uplink(data)
            if data == CLOSE:
                self._remove(site_token, stream)
            elif connection is None and number == 0:
                self._open(site_token, stream, frame)
            elif connection is None:
                await self._send_closed(site_token, stream, "unknown stream, send a hello")
            elif connection.close_reason is not None:
                return
            elif number == connection.next_number:
                connection.next_number += 1
                self._on_frame(connection, frame)
            else:
                connection.close(1008, "frame lost between the site and the coordinator")
        except Exception as error:
            self._fail(connection, error)

    def _open(self, site_token: str, stream: str, frame: bytes) -> None:
        server = self._server
        rate_limit = RateLimit(server.settings.max_messages_per_second)
        connection = NatsConnection(site_token, stream, self._clock(), rate_limit, self._mark_ready)
        self._connections[site_token, stream] = connection
        server.connection_count += 1
        if server.connection_count > server.settings.max_connections or server.draining:
            server.dropped["too many connections"] += 1
            connection.close(1013, "no more connections (max_connections)")
            return
        task = asyncio.get_running_loop().create_task(self._on_hello(connection, frame))
        self._hello_tasks.add(task)
        task.add_done_callback(self._hello_tasks.discard)

    async def _on_hello(self, connection: NatsConnection, frame: bytes) -> None:
        try:
            self._server.frame_bytes["up"] += len(frame)
            items = decode_up(frame)
            hello = _require_hello(items, connection.site_token)
            connection.session = await self._server.on_hello(connection, hello, f"site {hello.site}")
            if connection.session is None:  # the incarnation is retired, and the server has answered so
                return
            self._server.on_frame(connection.session, connection, items[1:], len(frame))
            for early in connection.before_hello:
                self._on_frame(connection, early)
        except Exception as error:
            self._fail(connection, error)

    def _on_frame(self, connection: NatsConnection, frame: bytes) -> None:
        if connection.session is None:
            connection.before_hello.append(frame)
            if len(connection.before_hello) > _MAX_FRAMES_BEFORE_HELLO:
                raise ProtocolError("too many frames before the answer to the hello")
            return
        self._server.frame_bytes["up"] += len(frame)
        items: list[UpItem] = decode_up(frame)
        self._server.on_frame(connection.session, connection, items, len(frame))
        if connection.rate_limit.take(len(items)):  # a broker cannot be slowed down, so excess closes the stream
            self._server.dropped["too many messages"] += 1
            connection.close(1008, "too many messages (max_messages_per_second)")

    def _fail(self, connection: NatsConnection | None, error: Exception) -> None:
        if isinstance(error, ProtocolError):
            self._server.dropped["limit reached" if isinstance(error, LimitReached) else "protocol"] += 1
        elif isinstance(error, StoreError):
            self._server.dropped["not saved"] += 1
        else:  # a bug: this stream is closed and the site reconnects; the other sites are not affected
            self._server.dropped["internal"] += 1
            log.error("frame handling failed", exc_info=error)
        if connection is not None:
            connection.close(1008, str(error) if isinstance(error, ProtocolError | StoreError) else "internal error")

    def _remove(self, site_token: str, stream: str) -> None:
        connection = self._connections.pop((site_token, stream), None)
        if connection is not None:
            self._ready.pop(connection, None)
            self._server.connection_count -= 1
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
        for frame in encode_frames(items):
            connection.sent += 1
            data = encode_data(DataFrame(connection.sent, frame))
            self._server.frame_sent(items, len(data))
            await self._publish(subject, data)
        if connection.close_reason is not None:
            await self._send_closed(connection.site_token, connection.stream, connection.close_reason)
            self._remove(connection.site_token, connection.stream)

    async def _send_closed(self, site_token: str, stream: str, reason: str) -> None:
        subject = downlink_subject(self._shard, site_token, stream)
        await self._publish(subject, encode_closed(StreamClosed(reason)))

    async def close(self, reason: str) -> None:
        for task in self._hello_tasks:
            task.cancel()
        for connection in list(self._connections.values()):
            connection.close(1012, reason)
        await self.flush()

    def debug_state(self) -> dict[str, list[str]]:
        """Open streams by site token."""
        streams: dict[str, list[str]] = {}
        for site_token, stream in self._connections:
            streams.setdefault(site_token, []).append(stream)
        return streams


def _require_hello(items: list[UpItem], site_token: str) -> Hello:
    if not items or not isinstance(items[0], Hello):
        raise ProtocolError("a stream must start with a hello")
    if subject_token(items[0].site) != site_token:  # the broker's permissions are for the subject
        raise ProtocolError(f"site {items[0].site!r} uses the subject of another site")
    return items[0]
