"""A long frame does not keep the loop from other work until its last item, and stays one frame for its site."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from countless.errors import ProtocolError
from countless.server.frame_reader import ITEMS_PER_SLICE, RECEIVER
from countless.server.http.access.auth import EVERYTHING
from countless.server.http.sockets.websocket import SocketConnection, _read
from countless.server.sessions.shares import UNLIMITED
from countless.wire.frames import VERSION, Hello, Item, Join, Sync, encode_frames
from support.site_server import SiteServerHarness, site_server
from support.waiting import eventually

LONG = 2501
HELLO = Hello(VERSION, "a", 1)


class Socket:
    """Stands for the WebSocket of a site; remembers which items were handled in which turn of the loop."""

    client = None

    def __init__(self, harness: SiteServerHarness) -> None:
        self.server = harness.server
        self.connection = SocketConnection(self, self.server)  # type: ignore[arg-type]
        self.receiver: Any = None
        self.scope = {"extensions": {RECEIVER: self._set_receiver}}
        self.frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.receive = self.frames.get
        self.turns: list[list[Item]] = [[]]
        self.after_slice: Callable[[], None] = lambda: None
        self._on_frame, self.server.on_frame = self.server.on_frame, self._count  # type: ignore[method-assign]

    def _set_receiver(self, receiver: Any) -> None:
        self.receiver = receiver

    def _count(self, session: Any, connection: Any, items: list[Any], size: int) -> None:
        assert self.receiver is None  # a frame of the fast path would overtake the rest of this one
        self._on_frame(session, connection, items, size)
        self.turns[-1] += items
        self.after_slice()

    def send(self, *items: Item) -> None:
        (frame,) = encode_frames(items)
        self.frames.put_nowait({"type": "websocket.receive", "bytes": frame})

    @property
    def handled(self) -> list[Item]:
        return [item for turn in self.turns for item in turn]

    async def read(self) -> None:
        await _read(self, self.server, EVERYTHING, UNLIMITED, self.connection)  # type: ignore[arg-type]

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turns.append([])

    async def until_waiting(self, reading: asyncio.Task[None]) -> None:
        await eventually(lambda: reading.done() or (self.receiver is not None and self.frames.empty()))
        if reading.done():
            reading.result()


@asynccontextmanager
async def socket() -> AsyncIterator[Socket]:
    async with site_server(max_messages_per_second=10**6) as harness:
        site = Socket(harness)
        turns = asyncio.create_task(site.count_turns())
        try:
            yield site
        finally:
            turns.cancel()


async def test_one_slice_of_a_frame_is_handled_in_a_turn_of_the_loop_and_frames_stay_in_order() -> None:
    joins, syncs = [Join(f"c{n}", 0, n) for n in range(LONG)], [Sync(n) for n in range(LONG)]
    async with socket() as site:
        site.send(HELLO, *joins)
        site.send(*syncs)
        site.send(Sync(LONG))
        reading = asyncio.create_task(site.read())
        await site.until_waiting(reading)
        assert site.handled == [*joins, *syncs, Sync(LONG)]
        assert max(map(len, site.turns)) == ITEMS_PER_SLICE
        assert len(site.server.counters) == LONG
        reading.cancel()


async def test_wrong_item_in_the_middle_ends_the_connection_after_the_items_before_it() -> None:
    async with socket() as site:
        site.send(HELLO)
        site.send(*[Join(f"c{n}", 0, n) for n in range(LONG)], HELLO, *[Join(f"d{n}", 0, n) for n in range(LONG)])
        with pytest.raises(ProtocolError, match="a second hello"):
            await site.read()
        assert sorted(site.server.counters) == sorted(f"c{n}" for n in range(LONG))


@pytest.mark.parametrize("replaced", [False, True])
async def test_connection_that_is_closed_in_the_middle_of_a_frame_handles_no_more_of_it(replaced: bool) -> None:
    async with socket() as site:
        tasks: list[asyncio.Task[Any]] = []

        def end() -> None:
            if replaced and not tasks:
                other = SocketConnection(site, site.server)  # type: ignore[arg-type]
                tasks.append(asyncio.create_task(site.server.on_hello(other, HELLO)))
            elif not replaced:
                site.connection.close(1008, "ended")

        site.send(HELLO)
        reading = asyncio.create_task(site.read())
        await site.until_waiting(reading)
        site.after_slice = end
        site.send(*[Join(f"c{n}", 0, n) for n in range(LONG)])
        await asyncio.sleep(0)
        await site.until_waiting(reading)
        assert len(site.server.counters) == len(site.handled) == ITEMS_PER_SLICE
        reading.cancel()
