"""A model in the shape of the OpenAI API that tells a witness what it has charged for, and misbehaves by its name.

`over-N` and `over-N-NAME`: every Nth call generates ten tokens more than it was allowed to. `silent`: it reports no
usage. `broken`: every call fails. `again`: two of three fail. `falls`: every call fails, and a stream only after it has
begun. `breaks`: every stream breaks off. `slow`: a stream that goes on until its caller leaves.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

OVER = 10
calls: Counter[str] = Counter()  # by model
charged: Counter[str] = Counter()  # tokens, by model
over: Counter[str] = Counter()  # tokens that no request had allowed, by model
limits: dict[str, int] = {}  # of the last call, by model
IMAGE = 4000  # tokens
PROMPT = 5  # tokens of any prompt, fewer than LiteLLM counts for one of a word


async def chat(request: Request) -> Response:
    body = await request.json()
    model = body["model"]
    calls[model] += 1
    limits[model] = body.get("max_tokens") or body.get("max_completion_tokens")
    if model == "broken" or (model == "again" and calls[model] % 3) or (model == "falls" and not body.get("stream")):
        return JSONResponse({"error": {"message": "out of order"}}, 500)
    allowed = limits[model] if limits[model] is not None else 100_000
    completion = allowed // 2
    every = int(model.split("-")[1]) if model.startswith("over-") else 0
    if every and calls[model] % every == 0:
        completion = allowed + OVER
        over[model] += OVER
    if body.get("stream"):
        return StreamingResponse(stream(body, completion), media_type="text/event-stream")
    charged[model] += PROMPT + completion
    content: dict[str, Any] = {
        "id": "stub",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "word " * 3}, "finish_reason": "stop"}],
    }
    if model != "silent":
        content["usage"] = usage(completion)
    return JSONResponse(content)


def usage(completion: int) -> dict[str, int]:
    return {"prompt_tokens": PROMPT, "completion_tokens": completion, "total_tokens": PROMPT + completion}


async def stream(body: Mapping[str, Any], completion: int) -> AsyncIterator[str]:
    model = body["model"]
    charged[model] += PROMPT
    if model == "falls":
        yield event(model, [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        raise ConnectionError
    sent = 0
    while sent < completion or model == "slow":
        sent += 1
        charged[model] += 1
        yield event(
            model, [{"index": 0, "delta": {"role": "assistant", "content": f"word{sent} "}, "finish_reason": None}]
        )
        if model == "breaks" and sent == 3:
            raise ConnectionError
        if model == "slow":
            await asyncio.sleep(0.01)
    yield event(model, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
    if model != "silent" and (body.get("stream_options") or {}).get("include_usage"):
        yield event(model, [], usage=usage(completion))
    yield "data: [DONE]\n\n"


def event(model: str, choices: list[object], **more: object) -> str:
    chunk = {"id": "stub", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": choices, **more}
    return f"data: {json.dumps(chunk)}\n\n"


async def image(request: Request) -> Response:
    model = (await request.json())["model"]
    calls[model] += 1
    charged[model] += PROMPT + IMAGE
    used = {"input_tokens": PROMPT, "output_tokens": IMAGE, "total_tokens": PROMPT + IMAGE}
    return JSONResponse({"created": 1, "data": [{"b64_json": "AAAA"}], "usage": used})


async def witness(request: Request) -> Response:
    return JSONResponse({"calls": calls, "charged": charged, "over": over, "limits": limits})


app = Starlette(
    routes=[
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/images/generations", image, methods=["POST"]),
        Route("/witness", witness),
    ]
)
