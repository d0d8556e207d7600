"""What is to be sent goes at once where it can, waits where it cannot, and never changes its order."""

import asyncio
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from starlette.websockets import WebSocket

from countless.server.http.fastpath import VOICE
from countless.server.http.websocket import SocketLine
from countless.server.sessions.site_server import SiteServer
from countless.wire.frames import DownItem, SyncAck, decode_down


class Peer:
    """A connection that takes frames by the short way when it pleases, and by the long one after a while."""

    def __init__(self, moods: list[bool]) -> None:
        self.moods = iter(moods)
        self.heard: list[DownItem] = []
        self.direct = 0
        self.counted = 0
        self.scope = {"extensions": {VOICE: self.voice}}

    def voice(self, frames: list[bytes]) -> bool:
        if not next(self.moods, True):
            return False
        self.direct += 1
        self.heard += [item for frame in frames for item in decode_down(frame)]
        return True

    async def send_bytes(self, frame: bytes) -> None:
        await asyncio.sleep(0)  # it waits for its turn, and others speak meanwhile
        self.heard += decode_down(frame)

    def frame_sent(self, items: list[DownItem], size: int) -> None:
        self.counted += len(items)


@given(st.lists(st.booleans(), max_size=30), st.lists(st.integers(0, 2), max_size=30))
def test_the_order_is_kept_whichever_way_a_frame_goes(moods: list[bool], turns: list[int]) -> None:
    async def story() -> None:
        peer: Any = Peer(moods)
        line = SocketLine(cast(WebSocket, peer), cast(SiteServer, peer))
        writer = asyncio.create_task(line.write())
        for number, each in enumerate(turns):
            line.send([SyncAck(2 * number), SyncAck(2 * number + 1)])
            for _ in range(each):
                await asyncio.sleep(0)
        for _ in range(2 * len(turns) + 3):
            await asyncio.sleep(0)
        writer.cancel()
        assert peer.heard == [SyncAck(number) for number in range(2 * len(turns))]
        assert peer.counted == 2 * len(turns)
        assert peer.direct or not turns or False in moods

    asyncio.run(story())
