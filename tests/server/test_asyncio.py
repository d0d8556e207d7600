"""An asyncio program: tasks and threads count without blocking the loop; waiting is done in a thread."""

import asyncio

import pytest

import countless
from countless.client.counter import Counter
from support.service import TIMEOUT_S, Server

pytestmark = pytest.mark.slow
TASKS, EACH = 20, 200


async def count(hits: Counter, number: int) -> None:
    for _ in range(EACH):
        hits.add()
        hits.labels(task=str(number % 3)).inc(2)
        await asyncio.sleep(0)


def count_in_a_thread(hits: Counter) -> None:
    for _ in range(EACH):
        hits.add()


async def test_tasks_and_threads_count_while_the_coordinator_is_unreachable(server: Server) -> None:
    server.kill()
    client = countless.connect(server.url)
    hits = client.counter("hits")
    async with asyncio.TaskGroup() as group:
        for number in range(TASKS):
            group.create_task(count(hits, number))
            group.create_task(asyncio.to_thread(count_in_a_thread, hits))
    # There is no coordinator yet: a call that waited for it would not have returned.
    flushed = asyncio.create_task(asyncio.to_thread(client.flush, TIMEOUT_S))
    await count(hits, 0)
    assert not flushed.done()
    await asyncio.to_thread(server.start)
    assert await flushed
    assert await asyncio.to_thread(client.close, TIMEOUT_S)
    labelled = [server.inspect(f'hits{{task="{task}"}}')["known"] for task in range(3)]
    assert sum(labelled) == 2 * (TASKS + 1) * EACH
    assert server.inspect("hits")["known"] - sum(labelled) == (2 * TASKS + 1) * EACH
