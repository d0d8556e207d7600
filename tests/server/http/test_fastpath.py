"""The short way from the socket brings what the library's way brings, however the bytes come in."""

import asyncio
import gc
import weakref
from typing import Any

import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from countless.server.http.fastpath import SHARE, SINK, Wire, frame_shape
from countless.wire.frames import MAX_FRAME_BYTES

REQUEST = (
    b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Transport(asyncio.Transport):
    """Nobody at the other end."""

    closing = False

    def write(self, data: Any) -> None:
        pass

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def _idle(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.Event().wait()


class Listener:
    """A connection of either kind, and what it has brought so far, in order."""

    def __init__(self, kind: type[WebSocketsSansIOProtocol], hello: bytes = REQUEST) -> None:
        config = uvicorn.Config(_idle, log_level="critical", ws_per_message_deflate=False, ws_max_size=MAX_FRAME_BYTES)
        self.wire = kind(config, ServerState(), {}, asyncio.get_running_loop())
        self.wire.connection_made(Transport())
        self.heard: list[bytes | str] = []
        self.quick = 0
        self.wire.data_received(hello)
        self.wire.conn.send_response(self.wire.response)
        self.wire.handshake_complete = True
        self.listen()
        if isinstance(self.wire, Wire):
            extensions: Any = self.wire.scope["extensions"]
            extensions[SINK](self._sink)

    def _sink(self, payload: bytes) -> float:
        self.heard.append(bytes(payload))
        self.quick += 1
        return 0.0

    def listen(self) -> None:
        while not self.wire.queue.empty():
            event: Any = self.wire.queue.get_nowait()
            if event["type"] == "websocket.receive":
                self.heard.append(bytes(event["bytes"]) if "bytes" in event else event["text"])
            elif event["type"] == "websocket.disconnect":
                self.heard.append(f"over: {event['code']}")

    async def hear(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self.wire.data_received(piece)
            self.listen()
        for _ in range(4 + sum(map(len, pieces)) // SHARE):  # turns of the loop
            await asyncio.sleep(0)
            self.listen()


def masked(opcode: Opcode, payload: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin).serialize(mask=True)


def until_over(heard: list[bytes | str]) -> list[bytes | str]:
    """A real transport is closed at the first offence; this one goes on."""
    end = next((n for n, what in enumerate(heard, 1) if str(what).startswith("over")), len(heard))
    return heard[:end]


LENGTHS = st.sampled_from([0, 1, 30, 125, 126, 300, SHARE - 9, SHARE, SHARE + 5, 70_000])
PAYLOADS = st.builds(lambda size, byte: bytes([byte]) * size, LENGTHS, st.integers(0, 255))
BINARY = st.builds(lambda payload: masked(Opcode.BINARY, payload), PAYLOADS)
OTHERS = st.one_of(
    st.just(masked(Opcode.PING, b"?")),
    st.just(masked(Opcode.TEXT, b"text")),
    st.builds(lambda one, two: masked(Opcode.BINARY, one, fin=False) + masked(Opcode.CONT, two), PAYLOADS, PAYLOADS),
    st.sampled_from(  # nothing after these counts
        [
            masked(Opcode.CLOSE, b"\x03\xe8"),
            masked(Opcode.BINARY, b"half", fin=False) + masked(Opcode.BINARY, b"and another"),
            b"\x82\x01x",  # without a mask
            b"\xc2\x81....y",  # compressed, which was not agreed
            b"\x82\xff" + (1 << 40).to_bytes(8, "big"),  # as long as it pleases
        ]
    ),
)


@given(st.lists(st.one_of(BINARY, BINARY, OTHERS), max_size=8), st.lists(st.integers(1, 20_000), max_size=20))
def test_both_ways_bring_the_same(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frames)
    pieces, start = [], 0
    for cut in cuts:
        pieces.append(stream[start : start + cut])
        start += cut
    pieces = [piece for piece in (*pieces, stream[start:]) if piece]

    async def both() -> None:
        plain, ours = Listener(WebSocketsSansIOProtocol), Listener(Wire)
        await plain.hear(frames)  # one by one: what comes together with an offence, it forgets
        await ours.hear(pieces)
        assert until_over(ours.heard) == until_over(plain.heard)

    asyncio.run(both())


def test_the_short_way_is_taken_by_what_comes_all_the_time() -> None:
    async def small() -> None:
        ours = Listener(Wire)
        await ours.hear([masked(Opcode.BINARY, b"one") + masked(Opcode.BINARY, b"two" * 60)])
        assert ours.quick == 2
        await ours.hear([masked(Opcode.BINARY, b"x" * SHARE)])
        assert (ours.quick, len(ours.heard)) == (2, 3)

    asyncio.run(small())


def test_whoever_cannot_wait_for_the_handshake_is_heard_all_the_same() -> None:
    async def eager() -> None:
        frame = masked(Opcode.BINARY, b"hello")
        ours = Listener(Wire, REQUEST + frame[:4])
        await ours.hear([frame[4:], masked(Opcode.BINARY, b"again")])
        assert (ours.heard, ours.quick) == ([b"hello", b"again"], 0)

    asyncio.run(eager())


def test_a_connection_that_is_lost_leaves_nothing_for_the_collector() -> None:
    """It would be found seconds or hours later, while everybody waits."""

    async def lost() -> weakref.ref[Wire]:
        ours = Listener(Wire)
        await ours.hear([masked(Opcode.BINARY, b"one"), masked(Opcode.TEXT, b"two")])
        ours.wire.connection_lost(None)
        for task in ours.wire.tasks:
            task.cancel()
        assert isinstance(ours.wire, Wire)
        return weakref.ref(ours.wire)

    gc.disable()
    try:
        assert asyncio.run(lost())() is None
    finally:
        gc.enable()


@given(BINARY, st.integers(0, 20))
def test_a_frame_shows_its_size_as_soon_as_its_header_is_there(frame: bytes, seen: int) -> None:
    body, size = frame_shape(b"before" + frame, 6)
    assert size == len(frame)
    assert len(frame) - body == len(Frame(Opcode.BINARY, frame[body:]).data)
    part = frame[:seen]
    assert seen >= len(frame) or frame_shape(part, 0)[1] > len(part)
