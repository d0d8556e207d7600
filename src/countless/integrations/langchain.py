"""A limit on calls of LangChain's chat models, over all processes.

    ChatOpenAI(model="gpt-4o", rate_limiter=LangchainLimiter("openai/requests"))

A call waits until the period, or the rolling window, has room.
"""

from typing import Unpack

from langchain_core.rate_limiters import BaseRateLimiter

from countless.client.client import Client
from countless.limiting.limit import PERIOD, Limit, Options


class LangchainLimiter(BaseRateLimiter):
    """A unit of a budget for each call; calls that find none in time raise `LimitExceeded`.

    Args:
        budget: Its name.
        client: From `connect`. None: `default_client()`.
        options: `timeout`, the longest wait in seconds, and the other options of `limited`.
    """

    def __init__(self, budget: str, client: Client | None = None, **options: Unpack[Options]) -> None:
        options.setdefault("wait", PERIOD)
        self._limit = Limit(client, budget, **options)

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take a unit. Models don't read the answer, so what is not admitted raises, unless `blocking` is False."""
        if not blocking:
            return bool(self._limit.client().budget(self._limit.budget).take(1, 0))
        self._limit.take({}, 1)
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        """`acquire`, while other tasks run."""
        if not blocking:
            return self.acquire(blocking=False)
        await self._limit.atake({}, 1)
        return True
