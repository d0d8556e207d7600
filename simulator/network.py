"""Connections that delay frames, break, and tell neither side, one side or both.

A connection keeps the order of frames in each direction, as TCP does. Two connections of one process do not: the last
frames of an old one may arrive after the first of a new one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from socket import socket
from typing import Protocol

from countless.client.transport.base import ConnectionLost, Received, Send
from countless.core.random_source import RandomSource
from countless.wire.frames import DownItem, encode_frames
from countless.wire.keys import Key

UP, DOWN = 0, 1
_TICK_S = 1e-6  # between two frames in one direction
MAX_NOTICE_S = 5.0  # until a side notices that a connection has broken, if it does


Arrival = tuple[Callable[..., None], tuple[object, ...]]  # what is called, with what


class Listener(Protocol):
    """The client's end."""

    def on_frame(self, link: "Link", frame: bytes) -> None: ...

    def on_lost(self, link: "Link", reason: str) -> None: ...


class Link:
    """One connection; for the coordinator it is a `Connection`."""

    def __init__(
        self,
        listener: Listener,
        delay: Callable[[], float],
        watch: Callable[[list[DownItem]], None],
        record: Callable[[int, bytes], None],
        max_frame_bytes: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._delay = delay
        self._watch = watch  # is told what the coordinator sends
        self._record = record  # of frames: their direction, and their bytes
        self._max_frame_bytes = max_frame_bytes
        self._arrival = [0.0, 0.0]  # of the last frame in each direction
        self._under_way: tuple[deque[Arrival], deque[Arrival]] = deque(), deque()
        self._held_until = 0.0  # frames to the coordinator
        self.arrived: asyncio.Queue[bytes | None] = asyncio.Queue()  # at the coordinator; None: it has ended
        self.broken = False
        self._client_open = self._server_open = True

    @property
    def open_at_server(self) -> bool:
        return self._server_open

    def send_up(self, frame: bytes) -> None:
        if not self._client_open:
            raise ConnectionLost("the connection is closed")
        self._record(UP, frame)
        self._travel(UP, self.arrived.put_nowait, frame)

    def close_at_client(self) -> None:
        if self._client_open:
            self._client_open = False
            self._travel(UP, self.arrived.put_nowait, None)

    def send(self, items: list[DownItem]) -> None:
        if self._server_open:
            self._watch(items)
            for frame in encode_frames(items, self._max_frame_bytes):
                self._record(DOWN, frame)
                self._travel(DOWN, self._listener.on_frame, self, frame)

    def close(self, code: int, reason: str) -> None:
        if self._server_open:
            self._server_open = False
            self._travel(DOWN, self._lost, f"connection closed by the coordinator: {reason}")
            self._loop.call_later(MAX_NOTICE_S, self.arrived.put_nowait, None)  # until then it reads on, as a socket

    def break_down(self, rng: RandomSource) -> None:
        """Lose the frames under way. Each side may notice, or has to find out by itself.

        Or only the client loses the connection: what it has sent arrives later, perhaps after frames of the next one.
        """
        if not self.broken and not rng.randbelow(3):
            self._held_until = self._loop.time() + rng.random() * MAX_NOTICE_S
            self._travel(UP, self.arrived.put_nowait, None)
            self._lost("connection lost")
        elif not self.broken:
            self.broken = True
            if rng.randbelow(4):
                self._loop.call_later(rng.random() * MAX_NOTICE_S, self._lost, "connection lost")
            if rng.randbelow(4):
                self._loop.call_later(rng.random() * MAX_NOTICE_S, self.arrived.put_nowait, None)

    def kill_server(self) -> None:
        """The coordinator has ended: its system closes the connection."""
        self._server_open = False
        if not self.broken:
            self.broken = True
            self._loop.call_later(self._delay(), self._lost, "connection lost")

    def _lost(self, reason: str) -> None:
        if self._client_open:
            self._client_open = False
            self._listener.on_lost(self, reason)

    def _travel(self, direction: int, arrive: Callable[..., None], *args: object) -> None:
        if not self.broken:
            at = max(self._arrival[direction] + _TICK_S, self._loop.time() + self._delay())
            self._arrival[direction] = at
            self._under_way[direction].append((arrive, args))
            self._loop.call_at(at, self._arrive, direction)

    def _arrive(self, direction: int) -> None:
        if direction == UP and self._loop.time() < self._held_until:
            self._loop.call_at(self._held_until, self._arrive, direction)
        elif not self.broken:
            arrive, args = self._under_way[direction].popleft()
            arrive(*args)


class LinkTransport:
    """A `Transport` over one link after another, to a coordinator that has all counters."""

    def __init__(self, connect: Callable[["LinkTransport"], Link], notify: Callable[[], None]) -> None:
        self._connect = connect
        self._notify = notify
        self._link: Link | None = None
        self._frames: list[bytes] = []
        self._lost: str | None = None

    def shard_count(self) -> int:
        return 1

    def shard_of(self, key: Key) -> int:
        return 0

    def open_stream(self, shard: int) -> Send:
        self._frames, self._lost = [], None
        self._link = self._connect(self)
        return self._link.send_up

    def sockets(self) -> list[socket]:
        return []

    def receive(self) -> dict[int, Received]:
        if self._frames:
            frames, self._frames = self._frames, []
            if self._lost is not None:
                self._notify()
            return {0: list(frames)}
        if self._lost is not None:
            reason, self._lost = self._lost, None
            return {0: ConnectionLost(reason)}
        return {}

    def close_stream(self, shard: int) -> None:
        if self._link is not None:
            self._link.close_at_client()
            self._link = None

    def close(self) -> None:
        self.close_stream(0)

    def abandon(self) -> None:
        """The process was killed: its system closes the connection."""
        self.close_stream(0)

    @property
    def link(self) -> Link | None:
        return self._link

    def on_frame(self, link: Link, frame: bytes) -> None:
        if link is self._link:
            self._frames.append(frame)
            self._notify()

    def on_lost(self, link: Link, reason: str) -> None:
        if link is self._link:
            self._lost = reason
            self._notify()
