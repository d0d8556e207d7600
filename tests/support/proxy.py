"""A bad network on loopback: a proxy in front of a real coordinator that delays, repeats, cuts, drops and stalls.

It knows where a WebSocket frame begins and ends, so that it can say one twice, or stop in the middle of one. What it
does is drawn from a seed, one source for each connection and direction; when connections come is up to the processes.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from urllib.parse import urlsplit

from countless.randomness import SeededRandom

_BINARY = 2


@dataclass(frozen=True)
class Weather:
    """What may happen to a frame, each with its probability; and to everybody."""

    drop: float = 0.0  # the connection is cut before it
    cut: float = 0.0  # ... and in the middle of it
    duplicate: float = 0.0  # it arrives twice (not the first of a connection: nobody introduces himself twice)
    delay: float = 0.0  # it waits up to so many seconds, and all behind it too
    stalled: bool = False  # connections are taken, and nothing moves until this is over
    parted: bool = False  # nobody comes through


CALM = Weather()


class Proxy:
    """Listens on a port of its own; `url` is what clients are given."""

    def __init__(self, target: str, seed: int) -> None:
        self.weather = CALM
        self.happened: Counter[str] = Counter()
        self._target = urlsplit(target)
        self._rng = SeededRandom(seed)
        self._number = 0
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._calm = asyncio.Event()
        self._calm.set()
        ready = Event()
        self._thread = Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()

    def become(self, weather: Weather) -> None:
        """From now on, and known to the proxy when this returns."""
        done = Event()
        self._loop.call_soon_threadsafe(self._change, weather, done)
        done.wait()

    def _change(self, weather: Weather, done: Event) -> None:
        self.weather = weather
        (self._calm.clear if weather.stalled else self._calm.set)()
        if weather.parted:
            for writer in self._open:
                writer.transport.abort()
        done.set()

    # In the loop

    def _run(self, ready: Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
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
        for writer in self._open:
            writer.transport.abort()
        self._loop.stop()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._number += 1
        rng = self._rng.spawn(self._number)
        self._open.add(writer)
        try:
            if not self.weather.parted:
                await self._relay(reader, writer, rng)
        except (OSError, EOFError):  # whoever it was has gone, as the weather wanted or because a process died
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: SeededRandom) -> None:
        there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._open.add(back)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, back, rng.spawn("up")))
                both.create_task(self._pump(there, writer, rng.spawn("down")))
        except* (OSError, EOFError):
            pass
        finally:
            self._open.discard(back)
            back.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: SeededRandom) -> None:
        """The handshake as it is, then frame by frame."""
        writer.write(await reader.readuntil(b"\r\n\r\n"))
        first = True
        while True:
            frame = await _frame(reader)
            await self._calm.wait()
            weather = self.weather
            await asyncio.sleep(weather.delay * rng.random())
            if self._chance("drop", weather.drop, rng):
                raise ConnectionAbortedError
            if self._chance("cut", weather.cut, rng):
                writer.write(frame[: len(frame) // 2])
                await writer.drain()
                raise ConnectionAbortedError
            writer.write(frame)
            if not first and frame[0] & 15 == _BINARY and self._chance("duplicate", weather.duplicate, rng):
                writer.write(frame)
            await writer.drain()
            first = False

    def _chance(self, what: str, probability: float, rng: SeededRandom) -> bool:
        happens = rng.random() < probability
        self.happened[what] += happens
        return happens


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """One whole frame, as it travels (RFC 6455, section 5.2)."""
    frame = await reader.readexactly(2)
    length = frame[1] & 127
    if length >= 126:
        frame += await reader.readexactly(2 if length == 126 else 8)
        length = int.from_bytes(frame[2:], "big")
    return frame + await reader.readexactly(length + (4 if frame[1] & 128 else 0))
