"""Waiting in an event loop until something is true."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from support.service import TIMEOUT_S


async def turn() -> None:
    await asyncio.sleep(0)


async def pause() -> None:
    """Where something else needs the processor until then."""
    await asyncio.sleep(0.01)


async def eventually(condition: Callable[[], Any], step: Callable[[], Awaitable[object]] = turn) -> None:
    """Let the loop run, or take this step, again and again until the condition is true."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await step()
