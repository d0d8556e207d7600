"""A faulty network on loopback: a proxy in front of a real coordinator that delays, cuts, drops and stalls.

It knows where a WebSocket frame begins and ends, so that it can stop before one, or in the middle. It repeats and
reorders none: TCP does not, and the wire format relies on it. Faults are drawn from a seed, with one random source for
each connection and direction; when clients connect is not.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from urllib.parse import urlsplit

from countless.randomness import SeededRandom
from support.service import TIMEOUT_S


@dataclass(frozen=True)
class FaultProfile:
    """Probabilities of what may happen to a frame, and states of the whole network."""

    drop: float = 0.0  # the connection is closed before the frame
    cut: float = 0.0  # the connection is closed in the middle of the frame
    max_delay_s: float = 0.0  # of the frame, and of all frames behind it
    stalled: bool = False  # connections are accepted and no frame passes
    partitioned: bool = False  # connections are closed
    lost: str = ""  # "up" or "down": the frames in this direction, until the connection is closed


HEALTHY = FaultProfile()


class Proxy:
    """Listens on a port of its own; clients connect to `url`."""

    def __init__(self, target: str, seed: int) -> None:
        self.faults: Counter[str] = Counter()
        self._profile = HEALTHY
        self._target = urlsplit(target)
        self._rng = SeededRandom(seed)
        self._connections = 0
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._not_stalled = asyncio.Event()
        self._not_stalled.set()
        ready = Event()
        self._thread = Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        if not ready.wait(TIMEOUT_S):
            raise TimeoutError("the proxy does not start")

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(TIMEOUT_S)

    def set_profile(self, profile: FaultProfile) -> None:
        """Takes effect before this returns."""
        done = Event()
        self._loop.call_soon_threadsafe(self._set_profile, profile, done)
        if not done.wait(TIMEOUT_S):
            raise TimeoutError("the loop of the proxy does nothing")

    def _set_profile(self, profile: FaultProfile, done: Event) -> None:
        self._profile = profile
        (self._not_stalled.clear if profile.stalled else self._not_stalled.set)()
        if profile.partitioned:
            self._abort_connections()
        done.set()

    # In the loop's thread

    def _run(self, ready: Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._on_connection, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _stop(self) -> None:
        self._abort_connections()
        self._loop.stop()

    def _abort_connections(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        rng = self._rng.spawn(self._connections)
        self._open.add(writer)
        try:
            if not self._profile.partitioned:
                await self._relay(reader, writer, rng)
        except (OSError, EOFError):  # a fault closed the connection, or a process was killed
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: SeededRandom) -> None:
        server_reader, server_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._open.add(server_writer)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, server_writer, "up", rng.spawn("up")))
                both.create_task(self._pump(server_reader, writer, "down", rng.spawn("down")))
        except* (OSError, EOFError):
            pass
        finally:
            self._open.discard(server_writer)
            server_writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str, rng: SeededRandom
    ) -> None:
        """The handshake unchanged, then frame by frame."""
        writer.write(await reader.readuntil(b"\r\n\r\n"))
        while True:
            frame = await _read_frame(reader)
            await self._not_stalled.wait()
            profile = self._profile
            if profile.lost == direction:
                self.faults["lost"] += 1
                continue
            await asyncio.sleep(profile.max_delay_s * rng.random())
            if self._draw("drop", profile.drop, rng):
                raise ConnectionAbortedError
            if self._draw("cut", profile.cut, rng):
                writer.write(frame[: len(frame) // 2])
                await writer.drain()
                raise ConnectionAbortedError
            writer.write(frame)
            await writer.drain()

    def _draw(self, fault: str, probability: float, rng: SeededRandom) -> bool:
        happens = rng.random() < probability
        self.faults[fault] += happens
        return happens


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """One whole frame with its header (RFC 6455, section 5.2)."""
    frame = await reader.readexactly(2)
    length = frame[1] & 127
    if length >= 126:
        frame += await reader.readexactly(2 if length == 126 else 8)
        length = int.from_bytes(frame[2:], "big")
    return frame + await reader.readexactly(length + (4 if frame[1] & 128 else 0))
