"""The coordinator's connection to the broker, and what JetStream stores there: logs of shards, a bucket of keys."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import TypeVar

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StreamConfig
from nats.js.errors import APIError, BucketNotFoundError, KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KeyValue

from countless.errors import CountlessError
from countless.server.cluster.broker_client import BrokerClient
from countless.tls import client_tls_context
from countless.wire.nats_subjects import LOG_SUBJECTS
from countless.wire.nats_url import Broker, Credentials

log = logging.getLogger("countless.nats")

T = TypeVar("T")
LOG_STREAM = "COUNTLESS"
BUCKET = "countless"
BROKER_ERRORS = (NatsError, TimeoutError, OSError)
STARTUP_TIMEOUT_S = 10.0  # until a coordinator that cannot reach its broker fails to start: both may start at once
JETSTREAM_TIMEOUT_S = 2.0  # JetStream without a leader does not answer at all, so try again soon
CANCEL_AGAIN_S = 1.0  # a task that waits for the broker
_RETRY_S = 0.2
_REPLICAS = 3
_NO_CLUSTER = 10074  # JetStream's error code on a single node for more than one replica


class NoBroker(CountlessError):
    """The broker cannot be reached, refuses the login, or has no JetStream."""


async def connect(url: str) -> Client:
    """Raises NoBroker if the first attempt fails; afterwards the connection reconnects by itself."""
    broker, credentials = Broker.parse(url), Credentials.from_environment()
    client, last_error = BrokerClient(), ""

    async def on_error(error: Exception) -> None:
        nonlocal last_error
        level = logging.INFO if last_error else logging.WARNING  # the first one at once: more attempts follow
        last_error = "no answer" if isinstance(error, TimeoutError) else str(error) or repr(error)
        log.log(level, "broker connection failed: broker=%s error=%s", broker.base, last_error)

    try:
        tls = client_tls_context() if broker.nodes[0].secure else None
    except OSError as error:
        raise NoBroker(str(error)) from None

    connecting = client.connect(
        servers=[f"nats://{node.netloc}" for node in broker.nodes],
        name="countless coordinator",
        user=broker.login.get("user"),
        password=broker.login.get("pass"),
        token=broker.login.get("auth_token"),
        tls=tls,
        user_jwt_cb=(lambda: bytearray(credentials.jwt.encode())) if credentials else None,
        signature_cb=credentials.sign if credentials else None,
        error_cb=on_error,
        connect_timeout=2,
        reconnect_time_wait=_RETRY_S,  # type: ignore[arg-type]
        max_reconnect_attempts=-1,
        ping_interval=5,
    )
    try:
        await asyncio.wait_for(connecting, STARTUP_TIMEOUT_S)
    except BROKER_ERRORS:
        raise NoBroker(f"no broker at {broker.base}: {last_error or 'no answer'}") from None
    return client


class Bucket:
    """Keys with compare-and-set."""

    def __init__(self, jetstream: JetStreamContext, bucket: KeyValue) -> None:
        self._jetstream = jetstream
        self._bucket = bucket

    async def get(self, key: str) -> tuple[bytes, int]:
        """The value and its revision; revision 0 if the key does not exist.

        Asks the leader: a write based on a replica that lags would fail.
        """
        try:
            message = await self._jetstream.get_last_msg(f"KV_{BUCKET}", f"$KV.{BUCKET}.{key}")
        except NotFoundError:
            return b"", 0
        return message.data or b"", message.seq or 0

    async def compare_and_set(self, key: str, value: bytes, revision: int) -> bool:
        """False if the key has another revision by now."""
        try:
            await self._bucket.update(key, value, last=revision)
        except KeyWrongLastSequenceError:
            return False
        return True


async def open_log(jetstream: JetStreamContext) -> None:
    """Create the JetStream stream of all shards' logs unless it exists."""
    try:
        await jetstream.stream_info(LOG_STREAM)
    except NotFoundError:
        config = StreamConfig(name=LOG_STREAM, subjects=[LOG_SUBJECTS], description="logs of Countless coordinators")
        await _replicated(lambda replicas: jetstream.add_stream(config, num_replicas=replicas))


async def open_bucket(jetstream: JetStreamContext) -> Bucket:
    """The bucket of the assignment and of the tokens; it is created unless it exists."""
    try:
        bucket = await jetstream.key_value(BUCKET)
    except BucketNotFoundError:
        config = KeyValueConfig(BUCKET, description="shard owners and tokens of Countless", history=1)
        bucket = await _replicated(lambda replicas: jetstream.create_key_value(config, replicas=replicas))
    return Bucket(jetstream, bucket)


async def _replicated(create: Callable[[int], Awaitable[T]]) -> T:
    """Three replicas on a cluster, one on a single node. Nodes of a cluster that are down do not reduce the number."""
    try:
        return await create(_REPLICAS)
    except APIError as error:
        if error.err_code != _NO_CLUSTER:
            raise
        return await create(1)


async def open_log_and_bucket(client: Client) -> Bucket:
    """Waits for a JetStream cluster that is starting."""
    jetstream, deadline = client.jetstream(timeout=JETSTREAM_TIMEOUT_S), monotonic() + STARTUP_TIMEOUT_S
    level = logging.WARNING
    while True:
        try:
            await open_log(jetstream)
            return await open_bucket(jetstream)
        except (NatsError, TimeoutError) as error:
            reason = str(error) or repr(error)
            if monotonic() > deadline:
                raise NoBroker(f"JetStream not available: {reason}") from None
            log.log(level, "JetStream not available, retried: error=%s", reason)
            level = logging.INFO
            await asyncio.sleep(_RETRY_S)


@asynccontextmanager
async def connected_bucket(url: str) -> AsyncIterator[Bucket]:
    client = await connect(url)
    try:
        yield await open_log_and_bucket(client)
    finally:
        await client.close()


def require_broker(url: str) -> None:
    """Raise NoBroker unless the broker can be used."""

    async def check() -> None:
        async with connected_bucket(url):
            pass

    asyncio.run(check())


async def end_tasks(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel them until all have ended.

    A cancellation gets lost in `asyncio.wait_for` of Python 3.11 if the result comes at the same moment, and in the
    library of NATS while its buffer is full.
    """
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=CANCEL_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
