"""Requests that arrive together do not keep the loop from other work until the last of them is answered."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from countless.server.connection import Turns
from countless.server.http.access.auth import EVERYTHING
from countless.server.http.api.openapi import require_scope


class Loop:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.turn = 0
        self.began: list[int] = []

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turn += 1

    async def handle(self, request: Request) -> Response:
        self.began.append(self.turn)
        return Response()


@pytest.mark.parametrize("scope", ["read", None])
async def test_one_request_begins_in_each_turn_of_the_loop(scope: str | None) -> None:
    loop = Loop()
    turns = asyncio.create_task(loop.run())
    state = SimpleNamespace(access=SimpleNamespace(authenticate=lambda caller: EVERYTHING))
    request: Any = Request({"type": "http", "headers": [], "app": SimpleNamespace(state=state)})
    handlers = [require_scope(scope, loop.handle, lock) for lock in [Turns()] * 2]
    await asyncio.gather(*(handlers[number % 2](request) for number in range(100)))
    turns.cancel()
    most = max(loop.began.count(turn) for turn in set(loop.began))
    assert most <= 2 if scope else most == 100  # probes are cheap, and never wait


async def test_request_waits_for_one_of_each_other_caller_however_many_those_have_sent() -> None:
    turns = Turns()
    began: list[str] = []

    async def request(caller: str) -> None:
        await turns.wait(caller)
        began.append(caller)

    flood = [asyncio.create_task(request(caller)) for caller in ["evil", "worse"] * 50]
    await asyncio.sleep(0)
    await asyncio.gather(request("honest"), *flood)
    assert began.index("honest") <= 3
    assert len(began) == 101
