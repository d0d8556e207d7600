import asyncio

import pytest
from nats.aio.client import Client

from countless.server.cluster import broker
from countless.server.cluster.broker import NoBroker, connect, open_bucket, open_log
from support.nats import free_ports

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


async def test_cancelled_flush_does_not_end_the_reading(client: Client) -> None:
    flush = asyncio.create_task(client.flush())
    await asyncio.sleep(0)  # the request is written, its answer comes later
    flush.cancel()
    await asyncio.gather(flush, return_exceptions=True)
    assert flush.cancelled()
    await open_log(client.jetstream())


async def test_missing_broker_is_an_error_with_its_address_and_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker, "STARTUP_TIMEOUT_S", 0.3)
    with pytest.raises(NoBroker, match=r"no broker at nats://127\.0\.0\.1:\d+: ") as caught:
        await connect(f"nats://me:secret@127.0.0.1:{free_ports(1)[0]}")
    assert "secret" not in str(caught.value)
