"""The same session over three transports: in memory, WebSocket and NATS. The transcripts are equal.

Six sites count, get another trigger, leave, reconnect, are retired and send an impossible round.
"""

import asyncio
import select
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from countless.client.transport.base import ConnectionLost, Transport
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.nats_transport import NatsTransport
from countless.client.transport.websocket import WebSocketTransport
from countless.core.messages import Report, Snapshot
from countless.errors import ProtocolError
from countless.server.http.answers.operator_view import operator_sum
from countless.server.sessions.session_table import Session
from countless.server.settings import Config
from countless.wire.frames import (
    VERSION,
    DownItem,
    Hello,
    IncarnationRetired,
    Join,
    Leave,
    Sync,
    SyncAck,
    UpItem,
    decode_down,
    decode_up,
    encode_frames,
)
from countless.wire.nats_url import Broker
from support.nats import Coordinator, node
from support.service import TIMEOUT_S, Server, until
from support.site_server import FakeConnection, SiteServerHarness, site_server

pytestmark = pytest.mark.slow

SITES = [f"site.{number}" for number in range(6)]
COARSE = {"alpha": 0.1, "scheme": "deterministic"}


class Setup(ABC):
    """A coordinator, and sites that are connected to it by one transport."""

    @abstractmethod
    def hello(self, site: str, incarnation: int) -> list[DownItem]:
        """Connect a site and send its Hello; returns the reply."""

    @abstractmethod
    def send(self, site: str, *items: UpItem) -> list[DownItem]:
        """Send these and a Sync; returns all items received up to the SyncAck."""

    @abstractmethod
    def send_invalid(self, site: str, *items: UpItem) -> str:
        """Send what the coordinator refuses by closing the connection; returns whether its reason names the site."""

    @abstractmethod
    def disconnect(self, site: str) -> None: ...

    @abstractmethod
    def configure(self, **config: Any) -> None: ...

    @abstractmethod
    def drop_site(self, site: str) -> None: ...

    @abstractmethod
    def known(self) -> int:
        """The sum of all counts that the coordinator knows, with labels and without."""


class InMemory(Setup):
    """A `SiteServer` in this process. Items are encoded to frames and decoded, as on a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, harness: SiteServerHarness) -> None:
        self._run = loop.run_until_complete
        self._harness = harness
        self._connections: dict[str, tuple[Session | None, FakeConnection]] = {}

    def hello(self, site: str, incarnation: int) -> list[DownItem]:
        connection = FakeConnection()
        self._connections[site] = (
            self._run(self._harness.server.on_hello(connection, Hello(VERSION, site, incarnation))),
            connection,
        )
        self._run(self._harness.server.flush())
        return self._received(connection)

    def send(self, site: str, *items: UpItem) -> list[DownItem]:
        session, connection = self._connections[site]
        assert session is not None
        for frame in encode_frames([*items, Sync(7)]):
            self._harness.server.on_frame(session, connection, decode_up(frame), len(frame))
        self._run(self._harness.server.flush())
        return self._received(connection)

    @staticmethod
    def _received(connection: FakeConnection) -> list[DownItem]:
        items, connection.received = connection.received, []
        return [item for frame in encode_frames(items) for item in decode_down(frame)]

    def send_invalid(self, site: str, *items: UpItem) -> str:
        with pytest.raises(ProtocolError) as caught:
            self.send(site, *items)
        self.disconnect(site)
        return "names the site" if site in str(caught.value) else "does not name it"

    def disconnect(self, site: str) -> None:
        session, connection = self._connections.pop(site)
        if session is not None:
            self._harness.server.on_disconnect(session, connection)

    def configure(self, **config: Any) -> None:
        self._harness.server.configure("hits", Config(**config))

    def drop_site(self, site: str) -> None:
        assert self._harness.server.drop_site(site) == 1

    def known(self) -> int:
        return operator_sum(self._harness.server, "hits").known


class OverSockets(Setup):
    """A coordinator in a process of its own, with a transport for each site."""

    def __init__(self, server: Server, transport_for: Any) -> None:
        self._server = server
        self._transport_for = transport_for
        self._connections: dict[str, tuple[Transport, Any]] = {}

    def hello(self, site: str, incarnation: int) -> list[DownItem]:
        transport: Transport = self._transport_for(site)
        assert transport.shard_count() == 1
        send = transport.open_stream(0)
        self._connections[site] = transport, send
        send(next(encode_frames([Hello(VERSION, site, incarnation)])))
        return self._receive(transport, 1)

    def send(self, site: str, *items: UpItem) -> list[DownItem]:
        transport, send = self._connections[site]
        for frame in encode_frames([*items, Sync(7)]):
            send(frame)
        received: list[DownItem] = []
        while SyncAck(7) not in received:
            received += self._receive(transport, 1)
        return received

    @staticmethod
    def _receive(transport: Transport, number: int) -> list[DownItem]:
        received: list[DownItem] = []
        while len(received) < number:
            assert select.select(transport.sockets(), [], [], TIMEOUT_S)[0], "no answer"
            frames = transport.receive().get(0, [])
            if isinstance(frames, ConnectionLost):
                raise frames
            received += [item for frame in frames for item in decode_down(frame)]
        return received

    def send_invalid(self, site: str, *items: UpItem) -> str:
        with pytest.raises(ConnectionLost, match=r"hung up|closed by the coordinator") as caught:
            self.send(site, *items)
        self.disconnect(site)
        return "names the site" if site in str(caught.value) else "does not name it"

    def disconnect(self, site: str) -> None:
        self._connections.pop(site)[0].close()

    def configure(self, **config: Any) -> None:
        self._server.reader.request("PATCH", "/api/v1/counters/hits", config)

    def drop_site(self, site: str) -> None:
        path = f"/api/v1/sites/{site}"
        until(lambda: self._server.reader.request("DELETE", path) == {"forgotten": 1}, "the site is disconnected")

    def known(self) -> int:
        known: int = self._server.inspect("hits")["known"]
        return known


@contextmanager
def memory(_: Path) -> Iterator[Setup]:
    loop = asyncio.new_event_loop()
    harness = site_server()
    yield InMemory(loop, loop.run_until_complete(harness.__aenter__()))
    loop.run_until_complete(harness.__aexit__(None, None, None))
    loop.close()


@contextmanager
def websocket(directory: Path) -> Iterator[Setup]:
    with Server(directory) as server:
        yield OverSockets(server, lambda _: WebSocketTransport(Endpoint.parse(server.url)))


@contextmanager
def over_nats(directory: Path) -> Iterator[Setup]:
    with node(directory / "broker") as broker, Coordinator(directory, broker.url, shards=1) as server:
        yield OverSockets(server, lambda site: NatsTransport(Broker.parse(broker.url), site))


def transcript_of(setup: Setup) -> list[Any]:
    """What each site receives at each step, and the known total in between."""
    transcript: list[Any] = []
    for number, site in enumerate(SITES):
        transcript.append(setup.hello(site, number + 1))
        transcript.append(setup.send(site, Join("hits", 0, 100 * number + 5)))
    transcript.append(setup.send(SITES[0], Report("hits", 0, 9, 1), Join('hits{route="/ä"}', 0, 2**70)))
    transcript.append(setup.known())
    setup.configure(**COARSE)
    for number, site in enumerate(SITES):  # a round start to all
        transcript.append(setup.send(site))
        transcript.append(setup.send(site, Snapshot("hits", 1, 100 * number + 11)))
    transcript.append(setup.known())
    transcript.append(setup.send(SITES[1], Leave("hits", 1, 130)))
    transcript.append(setup.send(SITES[1], Leave("hits", 1, 130)))
    setup.disconnect(SITES[2])
    transcript.append(setup.hello(SITES[2], 3))
    transcript.append(setup.send(SITES[2], Join("hits", 1, 222), Snapshot("hits", 1, 211), Report("hits", 1, 222, 1)))
    transcript.append(setup.send(SITES[2], Join("hits", 9, 300)))  # of a round that has not started
    transcript.append(setup.send(SITES[2], Join("hits", 0, 300)))
    setup.disconnect(SITES[3])
    setup.drop_site(SITES[3])
    transcript.append(setup.hello(SITES[3], 4))
    assert isinstance(transcript[-1][0], IncarnationRetired)
    setup.disconnect(SITES[3])
    transcript.append(setup.send_invalid(SITES[4], Report("hits", 77, 1, 1)))
    transcript.append(setup.hello(SITES[4], 5))
    transcript.append(setup.send(SITES[4], Join("hits", 1, 500)))
    transcript.append(setup.known())
    for site in (*SITES[:3], *SITES[4:]):
        setup.disconnect(site)
    return transcript


def test_transcript_does_not_depend_on_the_transport(tmp_path: Path) -> None:
    transcripts = {}
    for transport in (memory, websocket, over_nats):
        with transport(tmp_path / transport.__name__) as setup:
            transcripts[transport.__name__] = transcript_of(setup)
    assert transcripts["memory"][-1] == 11 + 130 + 222 + 311 + 411 + 511 + 2**70
    assert transcripts["websocket"] == transcripts["memory"]
    assert transcripts["over_nats"] == transcripts["memory"]
