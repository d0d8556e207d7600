"""One stream of a site, as the site server sees it, and the frames of it that wait to be handled."""

import asyncio
from collections import deque
from collections.abc import Callable

from countless.errors import LimitReached, ProtocolError
from countless.server.frame_reader import FrameReader
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import Amounts
from countless.server.site_server import SiteServer
from countless.wire.frames import MAX_FRAME_BYTES, DownItem, Hello, UpItem, decode_up
from countless.wire.nats_subjects import subject_token

_FRAME_COST_BYTES = 100  # beside its own bytes


class WaitingFrames:
    """Frames that wait; their memory is added up for the peer, like the incomplete messages of a WebSocket."""

    def __init__(self, held: Amounts, peer: str) -> None:
        self._held = held
        self._peer = peer
        self._frames: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def first(self) -> bytes:
        return self._frames[0]

    def add(self, frame: bytes) -> None:
        if len(frame) > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame of {len(frame)} bytes: the limit is {MAX_FRAME_BYTES}")
        self._frames.append(frame)
        if not self._held.take(self._peer, len(frame) + _FRAME_COST_BYTES):
            raise LimitReached("too many frames of this site wait to be handled (max_share of max_partial_mb)")

    def remove_first(self) -> None:
        self._held.add(self._peer, -len(self._frames.popleft()) - _FRAME_COST_BYTES)

    def clear(self) -> None:
        while self._frames:
            self.remove_first()


class NatsReader(FrameReader):
    def on_items(self, items: list[UpItem], size: int) -> float:
        if super().on_items(items, size):  # a broker cannot be slowed down, so excess closes the stream
            self._server.dropped["too many messages"] += 1
            self._connection.close(1008, "too many messages (max_messages_per_second)")
        return 0.0


class NatsConnection:
    """Sending only queues."""

    def __init__(
        self,
        server: SiteServer,
        site_token: str,
        stream: str,
        opened_at: float,
        on_queued: Callable[["NatsConnection"], None],
    ) -> None:
        self.opened_at = opened_at
        self.site_token = site_token
        self.stream = stream
        self.peer = f"site {site_token}"
        self.frames = WaitingFrames(server.partial_bytes, self.peer)
        self.task: asyncio.Task[None] | None = None  # that handles them
        self.opened = False  # the hello was handled
        self.ended = False  # by the site
        self.session: Session | None = None  # None: no hello was accepted
        self.reader: NatsReader | None = None  # of the session
        self.close_reason: str | None = None
        self.next_number = 1  # of the next frame from the site; the hello had 0
        self.sent = 0
        self.queue: list[DownItem] = []
        self._server = server
        self._on_queued = on_queued

    async def on_hello(self, frame: bytes) -> None:
        """If the incarnation is retired, the server answers so, and there is no session."""
        hello = self._require_hello(decode_up(frame, self._server.tuning.max_frame_bytes)[:1])
        self.session = await self._server.on_hello(self, hello, self.peer)
        self.opened = True
        if self.session is not None:
            self.reader = NatsReader(self._server, self.session, self)
            await self.reader.in_slices(frame, first=1)

    async def on_frame(self, frame: bytes) -> None:
        if self.reader is not None:
            await self.reader.in_slices(frame)

    def drop_frames(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self.frames.clear()

    def send(self, items: list[DownItem]) -> None:
        self.queue += items
        self._on_queued(self)

    def close(self, code: int, reason: str) -> None:
        """Once the queue has been sent. The code is that of a WebSocket; NATS has none."""
        self.close_reason = self.close_reason or reason
        self._on_queued(self)

    @property
    def closing(self) -> bool:
        return self.close_reason is not None

    def _require_hello(self, items: list[UpItem]) -> Hello:
        if not items or not isinstance(items[0], Hello):
            raise ProtocolError("a stream must start with a hello")
        if subject_token(items[0].site) != self.site_token:  # the broker's permissions are for the subject
            raise ProtocolError(f"site {items[0].site!r} uses the subject of another site")
        return items[0]
