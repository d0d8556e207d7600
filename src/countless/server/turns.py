"""Turns: the next to be served, where serving one keeps the others waiting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class Turns:
    """Callers take turns: a caller waits for one turn of each other caller, however many turns those want."""

    def __init__(self) -> None:
        self._all = asyncio.Lock()
        self._callers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        mine = self._callers.setdefault(caller, asyncio.Lock())
        async with mine, self._all:
            yield

    async def wait(self, caller: str) -> None:
        """A turn is one turn of the loop: some requests take 20 ms, and between two of them sites are served."""
        async with self.turn(caller):
            await asyncio.sleep(0)
