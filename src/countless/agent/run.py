"""Run an agent: bind the sockets, count until SIGTERM, read what has arrived, send the final counts."""

import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from countless.agent import sockets
from countless.agent.app import build_app
from countless.agent.bodies import MAX_BODY_BYTES
from countless.agent.envoy import EnvoySide
from countless.agent.intake import Intake
from countless.agent.parts import Agent
from countless.agent.rules import WindowRules
from countless.client.client import Client
from countless.errors import InvalidParameter
from countless.http_protocol import http_protocol
from countless.systemd import notify
from countless.wire.keys import validate_counter


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """The addresses at which an agent listens. The system chooses a port where 0 is given."""

    statsd_host: str
    statsd_port: int
    statsd_socket: Path | None
    http_host: str
    http_port: int
    http_socket: Path | None
    allow_remote: bool  # also on addresses that are not loopback

    def __post_init__(self) -> None:
        for name, port in (("statsd-port", self.statsd_port), ("http-port", self.http_port)):
            if not 0 <= port <= sockets.MAX_PORT:
                raise InvalidParameter(name, port, f"an integer from 0 to {sockets.MAX_PORT:,}")


class AgentServer(uvicorn.Server):
    """Prints where the agent listens as soon as all sockets are bound, and tells systemd."""

    def __init__(self, config: uvicorn.Config, places: list[str], envoy: EnvoySide | None) -> None:
        super().__init__(config)
        self._places = places
        self._envoy = envoy

    async def startup(self, *arguments: object, **options: object) -> None:
        if self._envoy is not None:
            self._places.append(await self._envoy.start())
        await super().startup(*arguments, **options)  # type: ignore[arg-type]
        if self.started:
            print(f"countless: listening on {' '.join(self._places)}", flush=True)
            notify("READY=1")

    async def shutdown(self, *arguments: object, **options: object) -> None:
        await super().shutdown(*arguments, **options)  # type: ignore[arg-type]
        if self._envoy is not None:
            await self._envoy.stop()


def run(
    client: Client,
    where: ListenConfig,
    prefix: str = "",
    rules: WindowRules | None = None,
    envoy: Mapping[str, Any] | None = None,
) -> None:
    """Count until SIGTERM or SIGINT. Raises `CannotListen` or `InvalidParameter` before it prints anything.

    `envoy`: the section of the agent's file.
    """
    if prefix:
        validate_counter(prefix, "statsd-prefix")
    intake = Intake(client, prefix, rules=rules)
    gateway = None if envoy is None else EnvoySide(envoy, client, allow_remote=where.allow_remote)
    receivers, endpoints = list[sockets.Receiver](), list[socket.socket]()
    try:
        receivers.append(sockets.udp(where.statsd_host, where.statsd_port, allow_remote=where.allow_remote))
        if where.statsd_socket is not None:
            receivers.append(sockets.unix(where.statsd_socket))
        endpoints.append(sockets.http(where.http_host, where.http_port, allow_remote=where.allow_remote))
        if where.http_socket is not None:
            endpoints.append(sockets.http_unix(where.http_socket))
        hosts = None if where.allow_remote else frozenset({where.http_host.lower()})
        _serve(Agent(client, intake, receivers, hosts, gateway), endpoints)
    finally:
        for endpoint in endpoints:
            endpoint.close()
        if where.http_socket is not None and len(endpoints) > 1:
            where.http_socket.unlink(missing_ok=True)
        for receiver in receivers:
            receiver.drain(intake)
            receiver.close()


def _serve(agent: Agent, endpoints: list[socket.socket]) -> None:
    config = uvicorn.Config(
        build_app(agent),
        loop="auto",  # uvloop where it exists
        http=http_protocol(MAX_BODY_BYTES),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    places = [*(receiver.where for receiver in agent.receivers), *map(sockets.http_where, endpoints)]
    # uvicorn raises the signal that stopped it again when it ends. Ignore it, so that the final counts are sent.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        AgentServer(config, places, agent.envoy).run(sockets=endpoints)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
