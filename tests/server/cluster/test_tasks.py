import asyncio
from contextlib import suppress

import pytest

from countless.server.cluster import broker
from countless.server.cluster.broker import end_tasks


async def test_task_that_misses_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "CANCEL_AGAIN_S", 0.01)
    missed = 0

    async def work() -> None:
        nonlocal missed
        while missed < 3:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            missed += 1
        await asyncio.Event().wait()

    async def fail() -> None:
        raise ValueError

    working, failed = asyncio.create_task(work()), asyncio.create_task(fail())
    await asyncio.sleep(0)
    await end_tasks([working, failed])
    assert (missed, working.cancelled(), failed.done()) == (3, True, True)
