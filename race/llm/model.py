"""A model on loopback in the shape of the OpenAI API, in the race's process: it knows what every call costs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from race.llm.workload import Call, number_of
from race.wire import free_port

MODEL = "gpt-4o"


class Model:
    """Takes as long as each call says, and charges what it says."""

    def __init__(self, calls: Sequence[Call], prompts: Sequence[int]) -> None:
        self.port = free_port()
        self._calls, self._prompts = calls, prompts

    async def chat(self, request: Request) -> Response:
        number = number_of((await request.json())["messages"][0]["content"])
        call, prompt = self._calls[number], self._prompts[number]
        await asyncio.sleep(call.seconds)
        message = {"role": "assistant", "content": "word " * call.answer}
        usage = {
            "prompt_tokens": prompt, "completion_tokens": call.answer, "total_tokens": prompt + call.answer
        }  # fmt: skip
        content: dict[str, Any] = {"id": "stub", "object": "chat.completion", "created": 1, "model": MODEL}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return JSONResponse({**content, "choices": choices, "usage": usage})

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        app = Starlette(routes=[Route("/v1/chat/completions", self.chat, methods=["POST"])])
        server = uvicorn.Server(uvicorn.Config(app, port=self.port, log_level="error"))
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve())
            try:
                yield
            finally:
                server.should_exit = True
