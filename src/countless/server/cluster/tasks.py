"""Ending tasks that wait for the broker: a single cancellation of them may have no effect."""

import asyncio
from collections.abc import Sequence

CANCEL_AGAIN_S = 1.0


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
