"""A limit on how many runs of Pydantic AI's agents, or calls of its models, are under way at once, over all processes.

    Agent("openai:gpt-4o", max_concurrency=PydanticAILimiter("agents"))

The budget has the kind `in_flight`. A run waits while all units are in use.
"""

from collections import deque
from typing import Unpack

from pydantic_ai.concurrency import AbstractConcurrencyLimiter

from countless.client.client import Client
from countless.core.budget.hold import Slot
from countless.errors import InvalidParameter
from countless.limiting.limit import PERIOD_WAIT_S, Limit, Options


class PydanticAILimiter(AbstractConcurrencyLimiter):
    """A unit of a budget for each run; runs that find none in time raise `LimitExceeded`.

    Args:
        budget: Its name.
        client: From `connect`. None: `default_client()`.
        options: `wait`, the longest wait in seconds, and the other options of `limited`.
    """

    def __init__(self, budget: str, client: Client | None = None, **options: Unpack[Options]) -> None:
        options.setdefault("wait", PERIOD_WAIT_S)
        self._limit = Limit(client, budget, **options)
        if self._limit.fields:  # `release` does not say whose unit it returns
            raise InvalidParameter("budget", budget, "a name without fields")
        self._slots: deque[Slot | None] = deque()

    async def acquire(self, source: str) -> None:
        self._slots.append(await self._limit.aacquire({}, 1))

    def release(self) -> None:
        """Return a unit, whichever: all are of one budget."""
        slot = self._slots.popleft()
        if slot is not None:
            slot.release()
