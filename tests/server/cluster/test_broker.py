import asyncio
from typing import Any
from urllib.parse import urlparse

import pytest
import uvloop
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from countless.server.cluster import broker, broker_client
from countless.server.cluster.broker import NoBroker, connect, open_bucket, open_log
from support.nats import free_ports
from support.service import TIMEOUT_S

pytestmark = pytest.mark.slow


async def test_log_and_bucket_can_be_opened_twice_and_a_stale_revision_is_refused(client: Client) -> None:
    jetstream = client.jetstream()
    for _ in range(2):
        await open_log(jetstream)
    first, again = await open_bucket(jetstream), await open_bucket(jetstream)
    _, revision = await first.get("key")
    assert await first.compare_and_set("key", b"value", revision)
    assert not await again.compare_and_set("key", b"other", revision)
    assert (await again.get("key"))[0] == b"value"


async def test_node_that_hangs_is_not_waited_for_before_the_next_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_client, "CLOSE_TIMEOUT_S", 0.01)

    class HangingWriter:
        aborted = False

        @property
        def transport(self) -> "HangingWriter":
            return self

        async def wait_closed(self) -> None:
            await asyncio.Event().wait()

        def abort(self) -> None:
            self.aborted = True

    transport: Any = object.__new__(TcpTransport)
    transport._io_writer = writer = HangingWriter()
    with pytest.raises(ConnectionError, match="the node takes no more data"):
        await transport.wait_closed()
    assert writer.aborted


def test_closed_connection_of_uvloop_is_an_error_of_the_connection() -> None:
    async def write_to_closed() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            transport: Any = TcpTransport()  # type: ignore[no-untyped-call]
            await transport.connect(urlparse(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"), 1024, TIMEOUT_S)
            transport._io_writer.transport.abort()
            await transport.wait_closed()
            with pytest.raises(ConnectionError, match="the handler is closed"):
                transport.writelines([b"PING\r\n"])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(write_to_closed())


async def test_missing_broker_is_an_error_with_its_address_and_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker, "STARTUP_TIMEOUT_S", 0.3)
    with pytest.raises(NoBroker, match=r"no broker at nats://127\.0\.0\.1:\d+: ") as caught:
        await connect(f"nats://me:secret@127.0.0.1:{free_ports(1)[0]}")
    assert "secret" not in str(caught.value)
