"""Run an agent: bind everything, count until SIGTERM, drain."""

import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from countless.agent import sockets
from countless.agent.app import Agent, build_app
from countless.agent.intake import Intake
from countless.agent.statsd import is_name
from countless.client.client import Client
from countless.errors import InvalidParameter


@dataclass(frozen=True, slots=True)
class Where:
    """Where an agent listens; ports of 0 are chosen by the system."""

    statsd_host: str
    statsd_port: int
    statsd_socket: Path | None
    http_host: str
    http_port: int
    anywhere: bool  # beyond loopback too


class Server(uvicorn.Server):
    """Says where it listens, once everything does."""

    def __init__(self, config: uvicorn.Config, places: list[str]) -> None:
        super().__init__(config)
        self._places = places

    async def startup(self, *arguments: object, **options: object) -> None:
        """As uvicorn does, and one line on standard output."""
        await super().startup(*arguments, **options)  # type: ignore[arg-type]
        if self.started:
            print(f"countless: listening on {' '.join(self._places)}", flush=True)


def run(client: Client, where: Where, prefix: str = "") -> None:
    """Until the process is told to stop, and all that had arrived is counted. Raises before it listens if it cannot."""
    if prefix and not is_name(prefix):
        raise InvalidParameter("statsd-prefix", prefix, "letters, digits, '_', '.' and '-'")
    intake, receivers = Intake(client, prefix), list[sockets.Receiver]()
    try:
        receivers.append(sockets.udp(where.statsd_host, where.statsd_port, anywhere=where.anywhere))
        if where.statsd_socket is not None:
            receivers.append(sockets.unix(where.statsd_socket))
        with sockets.http(where.http_host, where.http_port, anywhere=where.anywhere) as endpoint:
            _serve(Agent(client, intake, receivers), endpoint)
    finally:
        for receiver in receivers:
            receiver.drain(intake)
            receiver.close()


def _serve(agent: Agent, endpoint: socket.socket) -> None:
    config = uvicorn.Config(
        build_app(agent),
        loop="auto",  # uvloop where it exists
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    places = [*(receiver.where for receiver in agent.receivers), sockets.http_where(endpoint)]
    # uvicorn ends by raising the signal that stopped it: it must not keep us from the last words.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        Server(config, places).run(sockets=[endpoint])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
