"""The coordinator's connection to the broker, and what is kept there: a stream of logs, a bucket for the table."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StreamConfig
from nats.js.errors import APIError, BucketNotFoundError, KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KeyValue

from countless.errors import CountlessError
from countless.server.cluster.log_store import PATIENCE, STREAM, SUBJECTS
from countless.tls import client_tls_context
from countless.wire.nats_url import Broker, Credentials

log = logging.getLogger("countless.nats")

T = TypeVar("T")
BUCKET = "countless"
_PATIENCE = 20.0  # seconds until a coordinator that cannot reach its broker says so and ends
_COPIES = 3  # of everything, so that any one node may die
_NO_CLUSTER = 10074  # what JetStream says on a single node to more than one copy
_PAUSE = 0.2


class NoBroker(CountlessError):
    """There is none, it does not let us in, or it has no JetStream."""


async def connect(url: str) -> Client:
    """A connection that mends itself for ever, once it is there."""
    broker, credentials = Broker.parse(url), Credentials.from_environment()
    client, troubles = Client(), ["no answer"]

    async def trouble(error: Exception) -> None:
        troubles[0] = str(error) or repr(error)
        log.info("broker: %s", troubles[0])

    coming = client.connect(
        servers=[f"nats://{server.netloc}" for server in broker.nodes],
        name="countless coordinator",
        user=broker.login.get("user"),
        password=broker.login.get("pass"),
        token=broker.login.get("auth_token"),
        tls=client_tls_context() if broker.nodes[0].secure else None,
        user_jwt_cb=(lambda: bytearray(credentials.jwt.encode())) if credentials else None,
        signature_cb=credentials.sign if credentials else None,
        error_cb=trouble,
        connect_timeout=2,
        reconnect_time_wait=0.2,  # type: ignore[arg-type]
        max_reconnect_attempts=-1,
        ping_interval=5,
    )
    try:
        await asyncio.wait_for(coming, _PATIENCE)
    except (NatsError, OSError, TimeoutError):
        raise NoBroker(f"no broker at {broker.base}: {troubles[0]}") from None
    return client


async def open_log(stream: JetStreamContext) -> None:
    """The stream of all shards' logs."""
    try:
        await stream.stream_info(STREAM)
    except NotFoundError:
        config = StreamConfig(name=STREAM, subjects=[SUBJECTS], description="what coordinators of Countless remember")
        await _replicated(lambda replicas: stream.add_stream(config, num_replicas=replicas))


class Bucket:
    """Keys that are only ever written by whoever has read them last."""

    def __init__(self, stream: JetStreamContext, bucket: KeyValue) -> None:
        self._stream = stream
        self._bucket = bucket

    async def get(self, key: str) -> tuple[bytes, int]:
        """The value and its revision; 0 if there is none. From the leader: of a copy that lags, no write succeeds."""
        try:
            message = await self._stream.get_last_msg(f"KV_{BUCKET}", f"$KV.{BUCKET}.{key}")
        except NotFoundError:
            return b"", 0
        return message.data or b"", message.seq or 0

    async def put(self, key: str, value: bytes, revision: int) -> bool:
        """False: somebody else was faster."""
        try:
            await self._bucket.update(key, value, last=revision)
        except KeyWrongLastSequenceError:
            return False
        return True


async def open_bucket(stream: JetStreamContext) -> Bucket:
    """The bucket of the table and of the tokens."""
    try:
        bucket = await stream.key_value(BUCKET)
    except BucketNotFoundError:
        config = KeyValueConfig(BUCKET, description="who has which shard", history=1)
        bucket = await _replicated(lambda replicas: stream.create_key_value(config, replicas=replicas))
    return Bucket(stream, bucket)


async def open_both(client: Client) -> Bucket:
    """The stream and the bucket; a cluster that is just coming up is waited for."""
    stream, deadline = client.jetstream(timeout=PATIENCE), monotonic() + _PATIENCE
    while True:
        try:
            await open_log(stream)
            return await open_bucket(stream)
        except (NatsError, TimeoutError) as error:
            if monotonic() > deadline:
                raise NoBroker(f"the broker has no JetStream for us: {error}") from None
            log.info("JetStream: %r", error)
            await asyncio.sleep(_PAUSE)


def require_broker(url: str) -> None:
    """Raise if there is none that could be used."""

    async def look() -> None:
        client = await connect(url)
        try:
            await open_both(client)
        finally:
            await client.close()

    asyncio.run(look())


async def _replicated(create: Callable[[int], Awaitable[T]]) -> T:
    """Three copies where the broker is a cluster; never fewer because some of its nodes are not up yet."""
    try:
        return await create(_COPIES)
    except APIError as error:
        if error.err_code != _NO_CLUSTER:
            raise
        return await create(1)
