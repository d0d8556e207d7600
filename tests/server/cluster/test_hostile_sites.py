"""A hostile site with the credentials and permissions of design/cluster.md, at a real broker and coordinator."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from countless.client.transport.base import ConnectionLost
from countless.client.transport.nats_socket import NatsSocket
from countless.server.cluster.broker import BUCKET, LOG_STREAM
from countless.server.cluster.forwarding import ForwardedAuth, ForwardedRequest
from countless.server.cluster.member import ClusterMember
from countless.server.cluster.records import decode_record
from countless.server.cluster.router import SHARD_OPERATIONS
from countless.server.http.application import shard_app
from countless.server.http.history.history import Recorder
from countless.server.settings import Settings
from countless.wire.frames import VERSION, Hello, HelloAck, decode_down, encode_frames
from countless.wire.nats_protocol import publish
from countless.wire.nats_subjects import DataFrame, decode_downlink, encode_uplink
from countless.wire.nats_url import Broker
from support.nats import Node, node
from support.waiting import eventually, pause

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "design" / "cluster.md"
SITE = "web-1"  # of the documented permissions
FORGED = msgspec.msgpack.encode(ForwardedRequest("DELETE", "/api/v1/counters/hits", b"", [], b"", ["operator"], None))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A broker with the permissions of the docs."""
    found = re.search(r"^    authorization \{.*?^    \] \}$", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    config = found[0].replace("password: ...", "password: p")
    with node(tmp_path_factory.mktemp("guarded"), config, login="coordinator:p@") as broker:
        yield broker


@pytest.fixture
async def member(guarded: Node) -> AsyncIterator[ClusterMember]:
    settings = Settings(nats=guarded.url, nats_shards=1)
    member = await ClusterMember.join(
        settings, lambda server: shard_app(server, ForwardedAuth(), SHARD_OPERATIONS, Recorder(server))
    )
    running = asyncio.create_task(member.run())
    await eventually(lambda: member.shards, pause)
    yield member
    running.cancel()
    await member.leave()


class HostileSite:
    def __init__(self, broker: Node) -> None:
        address = Broker.parse(f"nats://{SITE}:p@{broker.url.rpartition('@')[2]}")
        self._socket = NatsSocket(address, address.nodes[0])
        self._streams = 0

    def write(self, data: bytes) -> None:
        self._socket.socket.sendall(data)

    async def answered(self) -> list[object]:
        """The answer to an ordinary hello: everything written before it has been read by the coordinator."""
        self._streams += 1
        self._socket.subscribe(f"countless.down.0.{SITE}.s{self._streams}")
        (hello,) = encode_frames([Hello(VERSION, SITE, (1 << 62) + self._streams)])
        self._socket.publish(f"countless.up.0.{SITE}.s{self._streams}", encode_uplink(0, hello))
        while True:
            for delivery in await asyncio.to_thread(self._socket.receive):
                message = decode_downlink(delivery.payload)
                if isinstance(message, DataFrame):
                    return list(decode_down(message.frame))

    def refused(self) -> str:
        """Why the broker closes the connection."""
        try:
            while True:
                self._socket.receive()
        except ConnectionLost as error:
            return str(error)

    def close(self) -> None:
        self._socket.abandon()


@pytest.fixture
def site(guarded: Node) -> Iterator[HostileSite]:
    site = HostileSite(guarded)
    yield site
    site.close()


MESSAGES = {
    "subject that is not UTF-8": [b"PUB countless.up.0.web-1.\xff 1\r\nx\r\n"],
    "header that is not UTF-8": [b"HPUB countless.up.0.web-1.x 17 17\r\nNATS/1.0 \xff\xff\xff \r\n\r\n\r\n"],
    "header without an end": [b"HPUB countless.up.0.web-1.x 8 9\r\nNATS/1.0x\r\n"],
    "another subscription's number in the subject": [
        publish(f"countless.up.0.web-1.x{space}{number}", FORGED) for number in range(1, 20) for space in "\v\f"
    ],
    "space in the subject and in the reply": [
        publish(f"countless.up.0.web-1.{subject}", b"x", reply) for subject in ("\v1\v1", "\v") for reply in ("", "\f1")
    ],
    "downlink subject too long for the broker": [publish(f"countless.up.0.web-1.{'s' * 4072}", encode_uplink(5, b"x"))],
    "reply to what only coordinators may write": [
        publish("countless.shards", b"", reply)
        for reply in ("$KV.countless.table", "countless.log.0", "countless.http.0", "$JS.API.STREAM.PURGE.COUNTLESS")
    ],
}


@pytest.mark.parametrize("attack", MESSAGES)
async def test_message_of_a_hostile_site_reaches_nothing_but_its_own_streams(
    member: ClusterMember, site: HostileSite, attack: str
) -> None:
    server = member.shards[0].server
    if "hits" not in server.counters:
        server.create("hits", server.settings.defaults)
    await server.flush()
    for message in MESSAGES[attack]:
        site.write(message)
    assert isinstance((await site.answered())[0], HelloAck)
    jetstream = member.client.jetstream()
    record = await jetstream.get_last_msg(LOG_STREAM, "countless.log.0")
    assert decode_record(record.data or b"").ownership_id
    assert ((await jetstream.get_last_msg(f"KV_{BUCKET}", f"$KV.{BUCKET}.table")).data or b"").startswith(b'{"owners"')
    assert "hits" in server.counters
    assert (member.client.is_connected, member.client.stats["reconnects"], member.failing) == (True, 0, None)


async def test_coordinator_whose_connection_is_closed_for_good_ends_with_the_reason(
    member: ClusterMember,
) -> None:
    ended = asyncio.Event()
    member.surroundings = member.surroundings._replace(end_process=ended.set)
    await member.client.close()
    await ended.wait()
    assert "connection closed by the broker" in str(member.failing)


@pytest.mark.parametrize(
    "subject",
    [
        "countless.log.0",
        "countless.http.0",
        "countless.call.0",
        "countless.down.0.web-2.x",
        "countless.up.0.web-2.x",
        "$KV.countless.table",
        "$JS.API.STREAM.PURGE.COUNTLESS",
        "_INBOX.x",
    ],
)
def test_documented_permissions_let_a_site_publish_under_its_own_name_only(site: HostileSite, subject: str) -> None:
    site.write(publish(subject, b"x"))
    assert f'Permissions Violation for Publish to "{subject}"' in site.refused()


@pytest.mark.parametrize("subject", ["countless.>", "countless.up.>", "countless.down.*.*.*", "_INBOX.>", "$KV.>"])
def test_documented_permissions_let_a_site_read_its_own_streams_only(site: HostileSite, subject: str) -> None:
    site.write(f"SUB {subject} 1\r\n".encode())
    assert "Permissions Violation for Subscription" in site.refused()
