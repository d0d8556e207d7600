"""5,000 sites that return at once: the coordinator is killed, and started again after its clients have tried for a
while. Each site pauses between attempts as the client does (`Backoff`).
"""

import os
import resource
import select
import socket
import tempfile
from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter, sleep
from typing import Any

from bench import fleet
from bench.coordinator import Coordinator
from countless.client.session.protocol import HELLO_TIMEOUT_S
from countless.client.session.reconnect import Backoff
from countless.core.messages import Snapshot, StartRound
from countless.randomness import SeededRandom
from countless.wire.frames import VERSION, Hello, HelloAck, Join, Sync, SyncAck, UpItem, decode_down
from tools.tables import Table

SITES, PROCESSES, DOWN_S = 5_000, 2, 15.0
COUNT = 1_000  # of each site
_CONNECT = select.EPOLLIN | select.EPOLLOUT


class Site(fleet.Conn):
    """It has counted before it connects, and counts nothing more."""

    def __init__(self, number: int) -> None:
        self._address = f"127.0.0.{2 + number % 8}"  # each may have 4,000 connections
        self.name, self._backoff = f"site-{number}", Backoff(SeededRandom(number))
        self.retry_at, self.joined_at, self.attempts = 0.0, inf, 0

    def open(self, port: int, now: float) -> None:
        self.attempts += 1
        self.retry_at = now + HELLO_TIMEOUT_S
        self._in, self._out, self._upgraded = bytearray(), fleet.HANDSHAKE.format(port=port).encode(), False
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.bind((self._address, 0))
        self.socket.connect_ex(("127.0.0.1", port))

    def lose(self, now: float) -> None:
        self.socket.close()
        self.joined_at, self.retry_at = inf, now + self._backoff.next()

    def step(self, now: float) -> None:
        """Raises OSError if the connection is lost."""
        if self._out:
            self._flush()
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError
        self._in += data
        end = self._in.find(b"\r\n\r\n")
        if not self._upgraded and end >= 0:
            if not self._in.startswith(b"HTTP/1.1 101"):
                raise ConnectionResetError
            del self._in[: end + 4]
            self._upgraded = True
            self.send([Hello(VERSION, self.name, 1 << 60)])
        if self._upgraded:
            for payload in self._payloads():
                self._answer(decode_down(payload), now)

    def _answer(self, items: list[Any], now: float) -> None:
        replies: list[UpItem] = []
        for item in items:
            if isinstance(item, HelloAck):
                replies += [Join("hits", 0, COUNT), Sync(1)]
            elif isinstance(item, StartRound):
                replies.append(Snapshot("hits", item.round, COUNT))
            elif isinstance(item, SyncAck):
                self.joined_at, self.retry_at = now, inf
                self._backoff.reset()
        if replies:
            self.send(replies)


class Sites:
    """Those of one process."""

    def __init__(self, port: int, first: int, number: int) -> None:
        self._port = port
        self._sites = [Site(each) for each in range(first, first + number)]
        self._open: dict[int, Site] = {}
        self._poll = select.epoll()
        self._due: list[tuple[float, int]] = [(0.0, number) for number in range(number)]

    def join(self) -> None:
        self._run(lambda site: site.joined_at < inf)

    def come_back(self, down_at: float) -> tuple[list[float], int]:
        """When each was back, and the attempts of all."""
        before = sum(site.attempts for site in self._sites)
        self._run(lambda site: down_at < site.joined_at < inf)
        return [site.joined_at for site in self._sites], sum(site.attempts for site in self._sites) - before

    def _run(self, done: Any) -> None:
        while not all(map(done, self._sites)):
            now = perf_counter()
            while self._due and self._due[0][0] <= now:
                number = heappop(self._due)[1]
                if self._sites[number].retry_at <= now:
                    self._attempt(number, now)
            for file, _ in self._poll.poll(0.02):
                self._step(file, perf_counter())

    def _attempt(self, number: int, now: float) -> None:
        """A pause is over, or the coordinator has not answered in time."""
        site = self._sites[number]
        files = [file for file, each in self._open.items() if each is site]
        if files:
            return self._lose(files[0], now)
        site.open(self._port, now)
        self._open[site.socket.fileno()] = site
        self._poll.register(site.socket.fileno(), _CONNECT | select.EPOLLET)
        heappush(self._due, (site.retry_at, number))
        return None

    def _step(self, file: int, now: float) -> None:
        try:
            self._open[file].step(now)
        except OSError:
            self._lose(file, now)

    def _lose(self, file: int, now: float) -> None:
        site = self._open.pop(file)
        self._poll.unregister(file)
        site.lose(now)
        heappush(self._due, (site.retry_at, self._sites.index(site)))


def main(port: int, first: int, number: int, orders: "Connection[Any, Any]") -> None:
    os.nice(10)
    sites = Sites(port, first, number)
    for name, arguments in iter(orders.recv, None):
        orders.send(getattr(sites, name)(*arguments))


def measure() -> Table:
    """Seconds from the line that says that the coordinator listens, until so many sites are back."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory() as directory:
        coordinator = Coordinator(directory)
        port, context, pipes, processes = coordinator.port, get_context("spawn"), [], []
        for number in range(PROCESSES):
            ours, theirs = context.Pipe()
            share = SITES // PROCESSES
            processes.append(context.Process(target=main, args=(port, number * share, share, theirs), daemon=True))
            processes[-1].start()
            pipes.append(ours)
        for pipe in pipes:
            pipe.send(("join", ()))
        for pipe in pipes:
            pipe.recv()
        down_at = perf_counter()
        coordinator.process.kill()
        coordinator.process.wait()
        for pipe in pipes:
            pipe.send(("come_back", (down_at,)))
        sleep(DOWN_S)
        coordinator = Coordinator(directory, port)
        listens_at = perf_counter()
        results = [pipe.recv() for pipe in pipes]
        used = coordinator.processor_seconds
        for pipe in pipes:
            pipe.send(None)
        coordinator.process.terminate()
        coordinator.process.wait()
    back = sorted(at - listens_at for times, _ in results for at in times)
    attempts = sum(number for _, number in results)
    assert all(before <= after for before, after in pairwise(back))
    rows = [(f"until {share:.0%} are back", f"{back[int(share * SITES) - 1]:.1f} s") for share in (0.5, 0.9, 1.0)]
    rows.append(("attempts of a site, in the outage and after it", f"{attempts / SITES:.1f}"))
    rows.append(
        ("processor time of the coordinator, its start included, for each site", f"{1000 * used / SITES:.1f} ms")
    )
    for what, value in rows:
        print(f"{SITES:,} sites after an outage of {DOWN_S:.0f} s: {what}: {value}", flush=True)
    return Table("load-return", ("", f"{SITES:,} sites"), rows)
