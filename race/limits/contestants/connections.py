"""Connections to Redis that fail at once while the server is away.

By default redis-py waits for seconds before it gives up. Here it tries once more, without waiting: so the first command
after a restart succeeds.
"""

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry


def retry_once() -> Retry:
    return Retry(NoBackoff(), 1)


def connect(address: str) -> Redis:
    return Redis(port=int(address), retry=retry_once())
