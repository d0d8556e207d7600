"""Long frames are decoded one at a time, and peers take turns."""

import asyncio

from countless.core.messages import SiteId
from countless.server.frame_reader import FrameReader
from countless.server.sessions.session_table import Session
from countless.wire.frames import VERSION, Hello, Join, encode_frames
from support.site_server import SiteServerHarness, site_server


class OpenConnection:
    closing = False

    def send(self, items: object) -> None: ...

    def close(self, code: int, reason: str) -> None: ...


async def reader_of(harness: SiteServerHarness, site: str, peer: str) -> tuple[FrameReader, Session]:
    connection = OpenConnection()
    session = await harness.server.on_hello(connection, Hello(VERSION, site, 1), peer)
    assert session is not None
    return FrameReader(harness.server, session, connection), session


async def test_peer_with_many_long_frames_delays_another_by_one_of_them_and_one_is_decoded_at_a_time() -> None:
    async with site_server(max_messages_per_second=10**6) as harness:
        hostile = [await reader_of(harness, f"hostile {number}", "token 1") for number in range(5)]
        other = await reader_of(harness, "other", "token 2")
        handled: list[SiteId] = []
        on_frame = harness.server.on_frame

        def record(session: Session, connection: OpenConnection, items: list[Join], size: int) -> None:
            if not handled or handled[-1] != session.site_id:
                handled.append(session.site_id)
            on_frame(session, connection, items, size)  # type: ignore[arg-type]

        harness.server.on_frame = record  # type: ignore[method-assign, assignment]
        (frame,) = encode_frames([Join(f"c{number}", 0, 1) for number in range(1000)])
        await asyncio.gather(*(reader.in_slices(frame) for reader, _ in [*hostile, other]))
        sites = [site_id.site for site_id in handled]
        assert sites == ["hostile 0", "other", "hostile 1", "hostile 2", "hostile 3", "hostile 4"]
