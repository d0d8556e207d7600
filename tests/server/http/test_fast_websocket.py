"""The fast path delivers the same messages as uvicorn's own protocol, however the bytes are cut."""

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from countless.errors import LimitReached
from countless.server.frame_reader import ERROR, HOLD, MAX_SHORT_BYTES, RECEIVER
from countless.server.http.sockets.fast_websocket import (
    CONNECTION_BYTES,
    MAX_FRAGMENTS,
    FastWebSocketProtocol,
    frame_extent,
)
from countless.unread import MAX_UNREAD_BYTES, UnreadTimer
from countless.wire.frames import MAX_FRAME_BYTES
from support.waiting import eventually

REQUEST = (
    b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Transport(asyncio.Transport):
    """Writes nothing; remembers whether it was closed."""

    closing = aborted = False
    unread = 0

    def write(self, data: Any) -> None:
        self.unread += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.aborted = True

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


class Peer:
    """A connection with one of the two protocols, and the messages it delivered so far, in order."""

    def __init__(self, kind: type[WebSocketsSansIOProtocol], handshake: bytes = REQUEST) -> None:
        config = uvicorn.Config(_idle, log_level="critical", ws_per_message_deflate=False, ws_max_size=MAX_FRAME_BYTES)
        self.protocol = kind(config, ServerState(), {}, asyncio.get_running_loop())
        self.protocol.connection_made(Transport())
        self.messages: list[bytes | str] = []
        self.fast = 0
        self.protocol.data_received(handshake)
        self.protocol.conn.send_response(self.protocol.response)
        self.protocol.handshake_complete = True
        self._drain()
        if isinstance(self.protocol, FastWebSocketProtocol):
            extensions: Any = self.protocol.scope["extensions"]
            extensions[RECEIVER](self._receive)

    def _receive(self, payload: bytes) -> float:
        self.messages.append(bytes(payload))
        self.fast += 1
        return 0.0

    def _drain(self) -> None:
        while not self.protocol.queue.empty():
            event: Any = self.protocol.queue.get_nowait()
            if event["type"] == "websocket.receive":
                self.messages.append(bytes(event["bytes"]) if "bytes" in event else event["text"])
            elif event["type"] == "websocket.disconnect":
                self.messages.append(f"closed: {event['code']}")

    async def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.protocol.data_received(piece)
            self._drain()
        for _ in range(4 + sum(map(len, pieces)) // CONNECTION_BYTES):  # turns of the loop
            await asyncio.sleep(0)
            self._drain()


def masked(opcode: Opcode, payload: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin).serialize(mask=True)


def until_closed(messages: list[bytes | str]) -> list[bytes | str]:
    """A real transport is closed at the first violation; the one of this test goes on."""
    end = next((n for n, what in enumerate(messages, 1) if str(what).startswith("closed")), len(messages))
    return messages[:end]


LENGTHS = st.sampled_from(
    [0, 1, 30, 125, 126, 300, 4_088, 4_089, CONNECTION_BYTES - 9, CONNECTION_BYTES, 16_389, 70_000]
)
PAYLOADS = st.builds(lambda size, byte: bytes([byte]) * size, LENGTHS, st.integers(0, 255))
BINARY = st.builds(lambda payload: masked(Opcode.BINARY, payload), PAYLOADS)
OTHERS = st.one_of(
    st.just(masked(Opcode.PING, b"?")),
    st.just(masked(Opcode.TEXT, b"text")),
    st.builds(lambda one, two: masked(Opcode.BINARY, one, fin=False) + masked(Opcode.CONT, two), PAYLOADS, PAYLOADS),
    st.sampled_from(  # the connection ends with each of these
        [
            masked(Opcode.CLOSE, b"\x03\xe8"),
            masked(Opcode.BINARY, b"half", fin=False) + masked(Opcode.BINARY, b"and another"),
            b"\x82\x01x",  # not masked
            b"\xc2\x81....y",  # compressed, which was not negotiated
            b"\x82\xff" + (1 << 40).to_bytes(8, "big"),  # longer than allowed
        ]
    ),
)


class Limited(Peer):
    """A connection that may hold so many bytes."""

    def __init__(self, room: int) -> None:
        super().__init__(FastWebSocketProtocol)
        self.held, self.room = 0, room
        extensions: Any = self.protocol.scope["extensions"]
        extensions[HOLD](self._hold)

    def _hold(self, n: int) -> bool:
        self.held += n
        return self.held <= self.room

    async def receive(self) -> Any:
        return await self.protocol.receive()


@given(
    st.lists(st.sampled_from([0, 30, 300, 15_000, 16_389, 70_000]), min_size=1, max_size=5),
    st.lists(st.integers(1, 30_000), max_size=9),
    st.booleans(),
)
def test_what_is_held_is_what_has_arrived_of_messages_that_were_not_read(
    sizes: list[int], cuts: list[int], fragments: bool
) -> None:
    async def check() -> None:
        peer, held = Limited(10**9), 0
        for size in sizes:
            half = size // 2 if fragments else 0
            stream = masked(Opcode.BINARY, b"x" * half, fin=False) if fragments else b""
            stream += masked(Opcode.CONT if fragments else Opcode.BINARY, b"x" * (size - half))
            for cut in (*cuts, len(stream)):
                piece, stream = stream[:cut], stream[cut:]
                if piece:
                    peer.protocol.data_received(piece)
                    held += len(piece)
                    for _ in range(2 + len(piece) // CONNECTION_BYTES):
                        await asyncio.sleep(0)
                    assert peer.held == (held if stream else 0) or not peer.protocol.queue.empty()
            while not peer.protocol.queue.empty():
                assert peer.held == held
                await peer.receive()
            assert peer.held == 0
            held = 0
        peer.protocol.data_received(40 * masked(Opcode.BINARY, b"x" * 3_000))  # more than one turn reads
        assert peer.held > 90_000
        for _ in range(20):
            await asyncio.sleep(0)
        assert peer.held == 0
        peer.protocol.data_received(masked(Opcode.BINARY, b"x" * 9_000)[:5_000])
        assert peer.held == 5_000
        peer.protocol.connection_lost(None)
        assert peer.held == 0

    asyncio.run(check())


async def test_connection_that_holds_too_much_is_reported_and_read_no_further() -> None:
    peer = Limited(100_000)
    message = masked(Opcode.BINARY, b"x" * 200_000)
    for start in range(0, len(message), 10_000):
        peer.protocol.data_received(message[start : start + 10_000])
        await asyncio.sleep(0)
    event = await peer.receive()
    assert isinstance(event[ERROR], LimitReached)
    assert (peer.held, peer.protocol.queue.empty()) == (0, True)


async def test_message_in_very_many_parts_is_refused() -> None:
    peer = Limited(10**9)
    peer.protocol.data_received(masked(Opcode.BINARY, b"", fin=False))
    for _ in range(2 * MAX_FRAGMENTS):
        peer.protocol.data_received(masked(Opcode.CONT, b"", fin=False))
    assert "more than 100 parts" in str((await peer.receive())[ERROR])
    assert len(peer.protocol.frames) == MAX_FRAGMENTS + 1


@given(st.lists(st.one_of(BINARY, BINARY, OTHERS), max_size=8), st.lists(st.integers(1, 20_000), max_size=20))
def test_fast_path_delivers_what_the_ordinary_path_delivers(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frames)
    pieces, start = [], 0
    for cut in cuts:
        pieces.append(stream[start : start + cut])
        start += cut
    pieces = [piece for piece in (*pieces, stream[start:]) if piece]

    async def compare() -> None:
        ordinary, fast = Peer(WebSocketsSansIOProtocol), Peer(FastWebSocketProtocol)
        await ordinary.feed(*frames)  # one by one: it drops messages that arrive together with a violation
        await fast.feed(*pieces)
        assert until_closed(fast.messages) == until_closed(ordinary.messages)

    asyncio.run(compare())


async def test_short_binary_frames_take_the_fast_path_and_long_ones_do_not() -> None:
    peer = Peer(FastWebSocketProtocol)
    await peer.feed(masked(Opcode.BINARY, b"one") + masked(Opcode.BINARY, b"two" * 60))
    assert peer.fast == 2
    await peer.feed(masked(Opcode.BINARY, b"x" * (MAX_SHORT_BYTES - 8)))
    assert (peer.fast, len(peer.messages)) == (3, 3)
    await peer.feed(masked(Opcode.BINARY, b"x" * (MAX_SHORT_BYTES - 7)), masked(Opcode.BINARY, b"x" * CONNECTION_BYTES))
    assert (peer.fast, len(peer.messages)) == (3, 5)


async def test_client_that_sends_before_the_handshake_ends_takes_the_ordinary_path() -> None:
    frame = masked(Opcode.BINARY, b"hello")
    peer = Peer(FastWebSocketProtocol, REQUEST + frame[:4])
    await peer.feed(frame[4:], masked(Opcode.BINARY, b"again"))
    assert (peer.messages, peer.fast) == ([b"hello", b"again"], 0)


def test_lost_connection_leaves_no_reference_cycle() -> None:
    """The garbage collector would stop the process for it, later."""

    async def lose() -> weakref.ref[FastWebSocketProtocol]:
        peer = Peer(FastWebSocketProtocol)
        await peer.feed(masked(Opcode.BINARY, b"one"), masked(Opcode.TEXT, b"two"))
        peer.protocol.connection_lost(None)
        for task in peer.protocol.tasks:
            task.cancel()
        assert isinstance(peer.protocol, FastWebSocketProtocol)
        return weakref.ref(peer.protocol)

    gc.disable()
    try:
        assert asyncio.run(lose())() is None
    finally:
        gc.enable()


@given(BINARY, st.integers(0, 20))
def test_frame_extent_is_known_as_soon_as_the_header_is_complete(frame: bytes, seen: int) -> None:
    offset, size = frame_extent(b"before" + frame, 6)
    assert size == len(frame)
    assert len(frame) - offset == len(Frame(Opcode.BINARY, frame[offset:]).data)
    part = frame[:seen]
    assert seen >= len(frame) or frame_extent(part, 0)[1] > len(part)


async def test_peer_that_sends_pings_and_does_not_read_is_disconnected() -> None:
    peer = Peer(FastWebSocketProtocol)
    transport: Any = peer.protocol.transport
    peer.protocol.pause_writing()
    ping, pings = masked(Opcode.PING, b"x" * 125), 0

    async def send_pings() -> None:
        nonlocal pings
        peer.protocol.data_received(ping * 100)
        pings += 100
        await asyncio.sleep(0)

    await eventually(lambda: transport.aborted, send_pings)
    assert MAX_UNREAD_BYTES < transport.unread < MAX_UNREAD_BYTES + 200 * len(ping)
    peer.protocol.connection_lost(None)
    quick = Peer(FastWebSocketProtocol)
    for _ in range(pings // 100):
        quick.protocol.data_received(ping * 100)
        await asyncio.sleep(0)
    assert not quick.protocol.transport.aborted  # type: ignore[attr-defined]  # it reads: writing was never paused


async def test_timer_of_a_peer_that_does_not_read_runs_while_writing_is_paused() -> None:
    calls: list[Any] = []

    def call_later(seconds: float, call: Any) -> Any:
        calls.append(call)
        return SimpleNamespace(cancel=calls.clear)

    loop: Any = SimpleNamespace(call_later=call_later)
    peer = Peer(FastWebSocketProtocol)
    protocol: Any = peer.protocol
    transport: Any = protocol.transport
    protocol._unread = UnreadTimer(transport, loop)
    protocol.pause_writing()
    assert len(calls) == 1
    protocol.resume_writing()
    assert calls == []
    protocol.pause_writing()
    calls[0]()
    assert transport.aborted
