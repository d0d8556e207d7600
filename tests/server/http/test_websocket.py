"""A connection sends what is queued in order, and closes when its peer does not read."""

import asyncio
from typing import Any

from countless.server.http.sockets.websocket import SocketConnection
from countless.server.storage.commit import MAX_QUEUED_ITEMS
from countless.wire.frames import DownItem, SyncAck, decode_down


class Peer:
    """Stands for the WebSocket and for the site server."""

    def __init__(self) -> None:
        self.received: list[DownItem] = []
        self.counted = 0
        self.closed: tuple[int, str] | None = None

    async def send_bytes(self, frame: bytes) -> None:
        await asyncio.sleep(0)
        self.received += decode_down(frame)

    async def close(self, code: int, reason: str) -> None:
        self.closed = code, reason

    def frame_sent(self, items: list[DownItem], size: int) -> None:
        self.counted += len(items)


async def test_items_are_sent_in_order_and_before_the_close() -> None:
    peer: Any = Peer()
    connection = SocketConnection(peer, peer)
    writer = asyncio.create_task(connection.write())
    for number in range(30):
        connection.send([SyncAck(2 * number), SyncAck(2 * number + 1)])
        for _ in range(number % 3):
            await asyncio.sleep(0)
    connection.close(1000, "the first reason")
    connection.close(1001, "another")
    await writer
    assert peer.received == [SyncAck(number) for number in range(60)]
    assert peer.counted == 60
    assert peer.closed == (1000, "the first reason")


async def test_peer_that_does_not_read_is_disconnected() -> None:
    peer: Any = Peer()
    connection = SocketConnection(peer, peer)
    connection.send([SyncAck(1)] * MAX_QUEUED_ITEMS)
    connection.send([SyncAck(1)])
    await connection.write()
    assert peer.closed == (1008, "does not read what it is sent")
    assert peer.received == []
