"""A limit on calls of models and embeddings of LlamaIndex, over all processes.

    OpenAI(model="gpt-4o", rate_limiter=LlamaIndexLimiter("openai/requests"))

A call waits until the period, or the rolling window, has room.
"""

from typing import Unpack

from llama_index.core.rate_limiter import BaseRateLimiter

from countless.client.client import Client
from countless.limiting.limit import PERIOD, Limit, Options


class LlamaIndexLimiter(BaseRateLimiter):
    """A unit of a budget for each call; calls that find none in time raise `LimitExceeded`.

    Args:
        budget: Its name.
        client: From `connect`. None: `default_client()`.
        options: `timeout`, the longest wait in seconds, and the other options of `limited`.
    """

    def __init__(self, budget: str, client: Client | None = None, **options: Unpack[Options]) -> None:
        options.setdefault("wait", PERIOD)
        self._limit = Limit(client, budget, **options)

    def acquire(self, num_tokens: int = 0) -> None:
        """Take a unit. Models of LlamaIndex don't say how many tokens they need, so these are not counted."""
        self._limit.take({}, 1)

    async def async_acquire(self, num_tokens: int = 0) -> None:
        """`acquire`, while other tasks run."""
        await self._limit.atake({}, 1)
