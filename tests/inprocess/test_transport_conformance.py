"""One conversation, three transports: a list in memory, a WebSocket, NATS. The transcripts are the same to the word.

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
from countless.server.sessions.session_table import Session
from countless.server.storage.base import Config
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
from support.service import TIMEOUT_S, Server
from support.site_server import FakeConnection, SiteServerHarness, site_server

pytestmark = pytest.mark.slow

SITES = [f"site.{number}" for number in range(6)]
COARSE = {"alpha": 0.1, "scheme": "deterministic"}


class Stage(ABC):
    """Where a conversation is held."""

    @abstractmethod
    def hello(self, site: str, incarnation: int) -> list[DownItem]:
        """On a fresh line; what is answered."""

    @abstractmethod
    def say(self, site: str, *items: UpItem) -> list[DownItem]:
        """And ask whether it has arrived; all that is heard until the answer."""

    @abstractmethod
    def lie(self, site: str, *items: UpItem) -> str:
        """The line is closed; whether the reason names the site."""

    @abstractmethod
    def hang_up(self, site: str) -> None: ...

    @abstractmethod
    def configure(self, **wishes: Any) -> None: ...

    @abstractmethod
    def forget(self, site: str) -> None: ...

    @abstractmethod
    def known(self) -> int: ...


class PersistentState(Stage):
    """A host on a table. What is said goes through the bytes of frames all the same."""

    def __init__(self, loop: asyncio.AbstractEventLoop, table: SiteServerHarness) -> None:
        self._run = loop.run_until_complete
        self._table = table
        self._lines: dict[str, tuple[Session | None, FakeConnection]] = {}

    def hello(self, site: str, incarnation: int) -> list[DownItem]:
        line = FakeConnection()
        self._lines[site] = self._run(self._table.server.on_hello(line, Hello(VERSION, site, incarnation))), line
        self._run(self._table.server.flush())
        return self._heard(line)

    def say(self, site: str, *items: UpItem) -> list[DownItem]:
        life, line = self._lines[site]
        assert life is not None
        for frame in encode_frames([*items, Sync(7)]):
            self._table.server.on_frame(life, line, decode_up(frame), len(frame))
        self._run(self._table.server.flush())
        return self._heard(line)

    @staticmethod
    def _heard(line: FakeConnection) -> list[DownItem]:
        items, line.received = line.received, []
        return [item for frame in encode_frames(items) for item in decode_down(frame)]

    def lie(self, site: str, *items: UpItem) -> str:
        with pytest.raises(ProtocolError) as caught:
            self.say(site, *items)
        self.hang_up(site)
        return "tells" if site in str(caught.value) else "does not tell"

    def hang_up(self, site: str) -> None:
        life, line = self._lines.pop(site)
        if life is not None:
            self._table.server.on_disconnect(life, line)

    def configure(self, **wishes: Any) -> None:
        self._table.server.configure("hits", Config(**wishes))

    def forget(self, site: str) -> None:
        assert self._table.server.drop_site(site) == 1

    def known(self) -> int:
        return self._table.server.counter("hits").coordinator.known_total


class Wired(Stage):
    """A coordinator in a process of its own, through a carrier for each site."""

    def __init__(self, server: Server, carrier_for: Any) -> None:
        self._server = server
        self._carrier_for = carrier_for
        self._lines: dict[str, tuple[Transport, Any]] = {}

    def hello(self, site: str, incarnation: int) -> list[DownItem]:
        carrier: Transport = self._carrier_for(site)
        assert carrier.shard_count() == 1
        send = carrier.open_stream(0)
        self._lines[site] = carrier, send
        send(next(encode_frames([Hello(VERSION, site, incarnation)])))
        return self._hear(carrier, 1)

    def say(self, site: str, *items: UpItem) -> list[DownItem]:
        carrier, send = self._lines[site]
        for frame in encode_frames([*items, Sync(7)]):
            send(frame)
        heard: list[DownItem] = []
        while SyncAck(7) not in heard:
            heard += self._hear(carrier, 1)
        return heard

    @staticmethod
    def _hear(carrier: Transport, number: int) -> list[DownItem]:
        heard: list[DownItem] = []
        while len(heard) < number:
            assert select.select(carrier.sockets(), [], [], TIMEOUT_S)[0], "no answer"
            news = carrier.receive().get(0, [])
            if isinstance(news, ConnectionLost):
                raise news
            heard += [item for frame in news for item in decode_down(frame)]
        return heard

    def lie(self, site: str, *items: UpItem) -> str:
        with pytest.raises(ConnectionLost, match=r"hung up|closed by the coordinator") as caught:
            self.say(site, *items)
        self.hang_up(site)
        return "tells" if site in str(caught.value) else "does not tell"

    def hang_up(self, site: str) -> None:
        self._lines.pop(site)[0].close()

    def configure(self, **wishes: Any) -> None:
        self._server.reader.request("PATCH", "/api/v1/counters/hits", wishes)

    def forget(self, site: str) -> None:
        while self._server.reader.request("DELETE", f"/api/v1/sites/{site}") != {"forgotten": 1}:
            pass  # its goodbye is still under way

    def known(self) -> int:
        known: int = self._server.inspect("hits")["known"]
        return known


@contextmanager
def memory(_: Path) -> Iterator[Stage]:
    loop = asyncio.new_event_loop()
    table = site_server()
    yield PersistentState(loop, loop.run_until_complete(table.__aenter__()))
    loop.run_until_complete(table.__aexit__(None, None, None))
    loop.close()


@contextmanager
def websocket(directory: Path) -> Iterator[Stage]:
    with Server(directory) as server:
        yield Wired(server, lambda _: WebSocketTransport(Endpoint.parse(server.url), None))


@contextmanager
def over_nats(directory: Path) -> Iterator[Stage]:
    with node(directory / "broker") as broker, Coordinator(directory, broker.url, shards=1) as server:
        yield Wired(server, lambda site: NatsTransport(Broker.parse(broker.url), site))


def conversation(stage: Stage) -> list[Any]:
    """What each is told at each step, and the total in between."""
    told: list[Any] = []
    for number, site in enumerate(SITES):
        told.append(stage.hello(site, number + 1))
        told.append(stage.say(site, Join("hits", 0, 100 * number + 5)))
    told.append(stage.say(SITES[0], Report("hits", 0, 9, 1), Join('hits{route="/ä"}', 0, 2**70)))
    told.append(stage.known())
    stage.configure(**COARSE)
    for number, site in enumerate(SITES):  # a round start to all
        told.append(stage.say(site))
        told.append(stage.say(site, Snapshot("hits", 1, 100 * number + 11)))
    told.append(stage.known())
    told.append(stage.say(SITES[1], Leave("hits", 1, 130)))
    told.append(stage.say(SITES[1], Leave("hits", 1, 130)))
    stage.hang_up(SITES[2])
    told.append(stage.hello(SITES[2], 3))
    told.append(stage.say(SITES[2], Join("hits", 1, 222), Snapshot("hits", 1, 211), Report("hits", 1, 222, 1)))
    told.append(stage.say(SITES[2], Join("hits", 9, 300)))  # from a round that never was
    told.append(stage.say(SITES[2], Join("hits", 0, 300)))
    stage.hang_up(SITES[3])
    stage.forget(SITES[3])
    told.append(stage.hello(SITES[3], 4))
    assert isinstance(told[-1][0], IncarnationRetired)
    stage.hang_up(SITES[3])
    told.append(stage.lie(SITES[4], Report("hits", 77, 1, 1)))
    told.append(stage.hello(SITES[4], 5))
    told.append(stage.say(SITES[4], Join("hits", 1, 500)))
    told.append(stage.known())
    for site in (*SITES[:3], *SITES[4:]):
        stage.hang_up(site)
    return told


def test_transcript_does_not_depend_on_the_transport(tmp_path: Path) -> None:
    transcripts = {}
    for stage in (memory, websocket, over_nats):
        with stage(tmp_path / stage.__name__) as here:
            transcripts[stage.__name__] = conversation(here)
    assert transcripts["memory"][-1] == 11 + 130 + 222 + 311 + 411 + 511
    assert transcripts["websocket"] == transcripts["memory"]
    assert transcripts["over_nats"] == transcripts["memory"]
