"""A process full of sites for the load bench: production sites, frames as they travel, plain non-blocking sockets.

The WebSocket is written by hand, with a mask of zeros: a client library would cost more than the server under test.
"""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any
from zlib import crc32

from countless.core.messages import SetTrigger, SiteId, StartRound
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.randomness import SeededRandom
from countless.wire.frames import VERSION, Hello, HelloAck, Join, Sync, SyncAck, UpItem, decode_down, encode_frames

COUNTERS_EACH = 10
ALREADY = 100_000  # events at least, of each site and counter, before sites connect: a fleet in the middle of its run
GROWTH = 32  # a count grows by 1/32 before the site checks its trigger; that is mostly a report
BURST = 200  # frames sent between two reads
HANDSHAKE = (
    "GET /api/v1/site HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Conn:
    """One site on one socket."""

    def __init__(self, port: int, number: int, counters: int) -> None:
        self.site_id = SiteId(f"site-{number}", 1 << 60)
        rng = SeededRandom(number)
        names = [f"counter-{(number * COUNTERS_EACH + i) % counters}" for i in range(COUNTERS_EACH)]
        self.sites = {name: Site(name, self.site_id, rng, trigger=EveryNth(1)) for name in names}
        self._cycle = list(self.sites.values())
        self.turn = 0
        self.welcome, self.synced = False, 0
        self._in, self._out = bytearray(), b""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(HANDSHAKE.format(port=port).encode())

    def handshake(self) -> None:
        """Read the response to the upgrade request, and send the Hello."""
        while b"\r\n\r\n" not in self._in:
            data = self.socket.recv(4096)
            assert data, "the coordinator refuses"
            self._in += data
        assert self._in.startswith(b"HTTP/1.1 101"), bytes(self._in)
        del self._in[: self._in.index(b"\r\n\r\n") + 4]
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.send([Hello(VERSION, str(self.site_id.site), self.site_id.incarnation)])

    @property
    def busy(self) -> bool:
        """Whether bytes are left that the coordinator does not read yet."""
        if self._out:
            self._flush()
        return bool(self._out)

    def send(self, items: list[UpItem]) -> None:
        for payload in encode_frames(items):
            size = len(payload)
            length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
            self._out += b"\x82" + length + b"\0\0\0\0" + payload
        self._flush()

    def _flush(self) -> None:
        with suppress(BlockingIOError):
            self._out = self._out[self.socket.send(self._out) :]

    def due(self, number: int) -> list[UpItem]:
        """The reports of so many counters, one after the other. Counts do not depend on when reports are due: traffic
        that goes from one secret lattice point to the next would defeat any scheme that has secrets.
        """
        reports: list[UpItem] = []
        for _ in range(number):
            site = self._cycle[self.turn % len(self._cycle)]
            self.turn += 1
            reports += site.advance(site.count + site.count // GROWTH)
        return reports

    def receive(self) -> None:
        """Read the frames that have arrived, and reply as a site does."""
        data = self.socket.recv(1 << 16)
        assert data, "the coordinator has hung up"
        self._in += data
        answers: list[UpItem] = []
        for payload in self._payloads():
            for item in decode_down(payload):
                if isinstance(item, StartRound | SetTrigger):
                    answers += self.sites[item.counter].receive(item)
                elif isinstance(item, SyncAck):
                    self.synced = item.number
                elif isinstance(item, HelloAck):
                    self.welcome = True
        if answers:
            self.send(answers)

    def _payloads(self) -> Iterator[bytes]:
        while len(self._in) >= 2:
            assert self._in[0] == 0x82, f"the coordinator has hung up: {bytes(self._in[:100])!r}"
            size, start = self._in[1], 2
            if size >= 126:
                width = 2 if size == 126 else 8
                size, start = int.from_bytes(self._in[2 : 2 + width], "big"), 2 + width
            if len(self._in) < start + size:
                return
            payload = bytes(self._in[start : start + size])
            del self._in[: start + size]
            yield payload


class Fleet:
    """All connections of one process."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._conns: list[Conn] = []
        self._by_file: dict[int, Conn] = {}
        self._poll = select.epoll()

    def connect(self, first: int, number: int, counters: int) -> None:
        for start in range(first, first + number, 100):
            fresh = [Conn(self._port, each, counters) for each in range(start, min(start + 100, first + number))]
            for conn in fresh:
                conn.handshake()
                self._by_file[conn.socket.fileno()] = conn
                self._poll.register(conn.socket.fileno(), select.EPOLLIN)
            self._conns += fresh
            self.listen(0)
        while not all(conn.welcome for conn in self._conns):
            self.listen(0.1)

    def join(self) -> None:
        for conn in self._conns:
            for site in conn.sites.values():
                site.advance(ALREADY + crc32(site.counter.encode()) % ALREADY)  # or all would start rounds at once
            conn.send([item for site in conn.sites.values() for item in (Join(*site.snapshot()), *site.resend())])
            self.listen(0)
        self.sync()

    def load(self, rate: float, seconds: float, per_frame: int) -> tuple[int, float]:
        """Reports sent at this rate, or as fast as they are taken if it is 0; and how long until all were safe."""
        start = perf_counter()
        sent, turn = 0, 0
        while (now := perf_counter() - start) < seconds:
            allowed = int(rate * now) - sent if rate else BURST * per_frame
            for _ in range(min(allowed, BURST * per_frame) // per_frame):
                conn = self._conns[turn % len(self._conns)]
                turn += 1
                if not conn.busy:
                    reports = conn.due(per_frame)
                    sent += len(reports)
                    conn.send(reports)
            self.listen(0 if allowed >= BURST * per_frame else 0.005)
        self.sync()
        return sent, perf_counter() - start

    def sync(self) -> None:
        """Wait until the coordinator has saved all that was sent."""
        number = 1 + max(conn.synced for conn in self._conns)
        for conn in self._conns:
            conn.send([Sync(number)])
        while any(conn.synced < number for conn in self._conns):
            for conn in self._conns:
                conn.busy  # noqa: B018 - sends what is left
            self.listen(0.05)

    def listen(self, seconds: float) -> None:
        for file, _ in self._poll.poll(seconds):
            self._by_file[file].receive()

    def counted(self) -> dict[str, int]:
        """The true totals, by counter."""
        total: dict[str, int] = {}
        for conn in self._conns:
            for name, site in conn.sites.items():
                total[name] = total.get(name, 0) + site.count
        return total


def main(port: int, orders: "Connection[Any, Any]") -> None:
    """Carry out the orders, and read the sockets in between. Real sites run on other machines, so these yield the
    processor to the coordinator."""
    os.nice(10)
    fleet = Fleet(port)
    while True:
        while not orders.poll(0):
            fleet.listen(0.2)
        name, arguments = orders.recv()
        if name == "stop":
            return
        orders.send(getattr(fleet, name)(*arguments))
