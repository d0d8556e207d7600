"""A coordinator of a cluster, on a real broker: how it loses its lease and gets another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from nats.aio.client import Client
from starlette.applications import Starlette

from countless.core.budget.rule import BudgetRule
from countless.server.cluster.broker import Bucket, open_log_and_bucket
from countless.server.cluster.forwarding import ForwardedAuth
from countless.server.cluster.leases import decode, encode, release_all
from countless.server.cluster.log_store import LogStore
from countless.server.cluster.member import ClusterMember
from countless.server.cluster.router import SHARD_OPERATIONS
from countless.server.http.application import shard_app
from countless.server.http.history.history import Recorder
from countless.server.kinds.counter import CounterFields
from countless.server.settings import Config, Settings
from countless.server.site_server import SiteServer
from countless.server.storage.base import StoreError
from support.saved import counter_changes
from support.service import TIMEOUT_S
from support.waiting import eventually, pause

pytestmark = pytest.mark.slow


def app_for(server: SiteServer) -> Starlette:
    return shard_app(server, ForwardedAuth(), SHARD_OPERATIONS, Recorder(server))


async def save_a_counter(client: Client) -> None:
    store = LogStore(client.jetstream(), 0, "earlier owner", lambda: True)
    await store.take_over()
    changes = counter_changes("hits", Config(alpha=0.02, scheme="dithered"), CounterFields(1, 1, 0))
    await asyncio.to_thread(store.save, changes)


@pytest.fixture
async def bucket(client: Client) -> Bucket:
    return await open_log_and_bucket(client)


@pytest.fixture
async def member(client: Client, bucket: Bucket) -> AsyncIterator[ClusterMember]:
    await save_a_counter(client)
    member = await ClusterMember.join_on(client, bucket, Settings(nats_shards=1, nats_lease=1.0), app_for)
    running = asyncio.create_task(member.run())
    yield member
    running.cancel()
    await member.leave()


async def expel(member: ClusterMember, bucket: Bucket) -> None:
    """As another coordinator does it."""
    for _ in range(100):  # it renews its lease meanwhile
        value, revision = await bucket.get("table")
        without = release_all(decode(value), member.lease.member_id)
        if await bucket.compare_and_set("table", encode(without), revision):
            return
    raise AssertionError("the table changed each time")


@pytest.mark.parametrize("log_is_read", [False, True])
async def test_member_that_is_expelled_in_a_take_over_joins_again_if_the_cancellation_is_lost(
    member: ClusterMember, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, log_is_read: bool
) -> None:
    began, read_log = asyncio.Event(), LogStore.take_over

    async def take_over(store: LogStore) -> None:
        is_first = not began.is_set()
        if log_is_read or not is_first:
            await read_log(store)
        if is_first:
            began.set()
            with suppress(asyncio.CancelledError):  # as `asyncio.wait_for` of Python 3.11, if the answer comes with it
                await asyncio.Event().wait()
        if is_first and not log_is_read:
            await read_log(store)

    monkeypatch.setattr(LogStore, "take_over", take_over)
    async with asyncio.timeout(TIMEOUT_S):
        await began.wait()
        expelled = member.lease.member_id
        await expel(member, bucket)
        await eventually(lambda: member.shards, pause)
    assert member.lease.member_id != expelled
    assert "hits" in member.shards[0].server.counters


async def test_request_that_waits_for_a_save_fails_if_its_shard_is_taken(member: ClusterMember, bucket: Bucket) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await eventually(lambda: member.shards, pause)
        server = member.shards[0].server
        await expel(member, bucket)
        await eventually(lambda: not member.shards)
        server.budgets.create("quota", BudgetRule(10))
        with pytest.raises(StoreError, match="taken over by another coordinator"):
            await server.require_saved()
