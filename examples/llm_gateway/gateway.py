"""A gateway to a model behind the OpenAI API. Each tenant has a monthly budget of tokens, over all replicas.

    uvicorn gateway:app --port 8001

For each request it reserves the most that the request can cost, asks the model, and settles what the model has charged
for. What was reserved and not used is free again at once.

| variable        | meaning                                                          |
|-----------------|------------------------------------------------------------------|
| `COUNTLESS_URL` | the coordinator                                                  |
| `UPSTREAM_URL`  | the model, such as http://127.0.0.1:9000/v1                      |
| `UPSTREAM_KEY`  | the key for the model; the stub needs none                       |
| `TENANTS`       | a JSON file with the tenant of each API key                      |
"""

import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from math import ceil
from pathlib import Path
from time import time
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import countless
from countless import ClientBudget, Hold
from countless.errors import BudgetRefused, HoldExpired, InvalidParameter, LimitExceeded

log = logging.getLogger("gateway")

DEFAULT_MAX_TOKENS = 1024
MESSAGE_TOKENS = 16  # a model adds fewer to each message
WAIT_S = 1.0

client = countless.connect()
model = httpx2.AsyncClient(
    base_url=os.environ.get("UPSTREAM_URL", "http://127.0.0.1:9000/v1"),
    headers={"authorization": f"Bearer {os.environ.get('UPSTREAM_KEY', 'none')}"},
    timeout=60.0,
    trust_env=False,
)
tenants: dict[str, str] = json.loads(Path(os.environ.get("TENANTS", "tenants.json")).read_text(encoding="utf-8"))


class Problem(Exception):
    """What the caller is told, in the shape of the OpenAI API."""

    def __init__(self, status: int, kind: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        headers = None if retry_after is None else {"retry-after": str(retry_after)}
        content = {"error": {"message": message, "type": kind, "param": None, "code": kind}}
        self.response = JSONResponse(content, status, headers)


class ChatCompletions:
    """`POST /v1/chat/completions`, as an ASGI application: the reservation lasts until the answer is sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            budget = client.budget(f"tokens/{tenant_of(request)}")
            body, units = read_request(await request.body())
            try:
                async with budget.areserve(units, WAIT_S) as hold:
                    await self._forward(body, hold, scope, receive, send)
            except InvalidParameter as problem:  # also AboveLimit
                raise Problem(
                    400, "invalid_request_error", f"the request is larger than the budget: {problem}"
                ) from problem
            except BudgetRefused as refusal:
                raise out_of_budget(budget, refusal) from refusal
        except Problem as problem:
            await problem.response(scope, receive, send)

    async def _forward(self, body: dict[str, Any], hold: Hold, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with await ask_model(body, hold) as reply:
                if reply.status_code == 200 and body.get("stream"):
                    response: Response = StreamingResponse(relay(reply, hold), media_type="text/event-stream")
                else:
                    content = await reply.aread()
                    settle(hold, json.loads(content)["usage"]["total_tokens"] if reply.status_code == 200 else 0)
                    response = Response(content, reply.status_code, media_type=reply.headers.get("content-type"))
                await response(scope, receive, send)
        finally:
            # If it is not settled by now, the caller has left or the model broke off: it may have charged for all.
            settle(hold, hold.units)


async def ask_model(body: dict[str, Any], hold: Hold) -> aclosing[httpx2.Response]:
    try:
        return aclosing(await model.send(model.build_request("POST", "/chat/completions", json=body), stream=True))
    except httpx2.ConnectError as error:
        settle(hold, 0)
        raise Problem(502, "upstream_error", f"the model cannot be reached: {error}") from error
    except httpx2.HTTPError as error:
        raise Problem(502, "upstream_error", f"the model broke off: {error}") from error


async def relay(reply: httpx2.Response, hold: Hold) -> AsyncIterator[str]:
    """The events of the model; the last but one has the usage."""
    async for line in reply.aiter_lines():
        if line.startswith("data: {"):
            usage = json.loads(line.removeprefix("data: ")).get("usage")
            if usage:
                settle(hold, usage["total_tokens"])
        yield line + "\n"


def settle(hold: Hold, used: int) -> None:
    if used > hold.units:
        log.error("reservation too small: reserved=%d used=%d", hold.units, used)
    with suppress(HoldExpired):  # an answer that takes ten minutes: all that was reserved counts as spent
        hold.settle(min(used, hold.units))


def tenant_of(request: Request) -> str:
    tenant = tenants.get(request.headers.get("authorization", "").removeprefix("Bearer "))
    if tenant is None:
        raise Problem(401, "invalid_api_key", "the API key is missing or unknown")
    return tenant


def read_request(content: bytes) -> tuple[dict[str, Any], int]:
    """The request for the model, and the most tokens it can cost: every token of a prompt is a byte or more."""
    try:
        body = json.loads(content)
        texts = [message["content"] for message in body["messages"]]
        most = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_MAX_TOKENS
        choices = body.get("n") or 1
        valid = all(isinstance(text, str) for text in texts) and all(
            isinstance(number, int) and number > 0 for number in (most, choices)
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        valid = False
    if not valid:
        raise Problem(400, "invalid_request_error", "messages must have text; max_tokens and n must be 1 or more")
    body["max_tokens"] = most
    if body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    return body, len(content) + MESSAGE_TOKENS * len(texts) + most * choices


def out_of_budget(budget: ClientBudget, refusal: BudgetRefused) -> Problem:
    if isinstance(refusal, LimitExceeded):
        resets = budget.resets_at
        retry = None if resets is None else max(0, ceil(resets - time()))
        return Problem(429, "insufficient_quota", "the tokens of this month are used up", retry)
    log.error("request not admitted: budget=%s reason=%s", budget.name, refusal)
    return Problem(503, "budget_unavailable", "the budget cannot be checked at present", retry_after=1)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    yield
    await model.aclose()
    client.close()  # hands in what was spent


app = Starlette(
    routes=[Route("/v1/chat/completions", ChatCompletions(), methods=["POST"])],
    lifespan=lifespan,
)
