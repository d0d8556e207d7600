"""A model that answers at once, offline, in the shape of the OpenAI API, and counts the tokens it has charged for.

    uvicorn stub_model:app --port 9000

A word is a token, and every message costs three more. `GET /tokens` has the sum: the test compares it with the budget.
"""

import json
import random
from collections.abc import Iterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

charged = {"tokens": 0, "requests": 0}
answers = random.Random(1)  # noqa: S311 - the same answers in every run


async def chat(request: Request) -> Response:
    body = await request.json()
    prompt = sum(3 + len(message["content"].split()) for message in body["messages"])
    completion = answers.randint(1, body["max_tokens"])
    charged["tokens"] += prompt + completion
    charged["requests"] += 1
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if body.get("stream"):
        return StreamingResponse(stream(body["model"], completion, usage), media_type="text/event-stream")
    message = {"role": "assistant", "content": "word " * completion}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return JSONResponse(
        {"id": "stub", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}
    )


def stream(model: str, completion: int, usage: dict[str, int]) -> Iterator[str]:
    chunk = {"id": "stub", "object": "chat.completion.chunk", "model": model}
    for _ in range(completion):
        choice = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
        yield event({**chunk, "choices": [choice], "usage": None})
    yield event({**chunk, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def event(content: dict[str, object]) -> str:
    return f"data: {json.dumps(content)}\n\n"


async def tokens(request: Request) -> Response:
    return JSONResponse(charged)


app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"]), Route("/tokens", tokens)])
