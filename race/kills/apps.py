"""The web applications of `python -m race kills`: the same endpoint, with its limit in Redis or in Countless.

SERVER=redis://127.0.0.1:6379 uvicorn race.kills.apps:redis_app --factory
"""

import os

from limits import RateLimitItemPerMinute
from limits.aio.strategies import FixedWindowRateLimiter
from limits.storage import storage_from_string
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import countless
from countless.asgi import LimitRequests

LIMIT = 100  # a minute
BUDGET = "requests"


async def ready(request: Request) -> Response:
    return PlainTextResponse("ready")


READY = Route("/ready", ready)  # takes nothing of the limit: a window of `limits` begins with its first hit


def countless_app() -> Starlette:
    async def hello(request: Request) -> Response:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/", hello), READY])
    client = countless.connect(os.environ["SERVER"])
    app.add_middleware(LimitRequests, client=client, budget=BUDGET, cost=lambda scope: int(scope["path"] == "/"))
    return app


def redis_app() -> Starlette:
    storage = storage_from_string("async+" + os.environ["SERVER"], implementation="redispy")
    limiter = FixedWindowRateLimiter(storage)
    item = RateLimitItemPerMinute(LIMIT)

    async def hello(request: Request) -> Response:
        try:
            admitted = await limiter.hit(item, BUDGET)
        except storage.base_exceptions:
            return PlainTextResponse("the limit is unknown", status_code=503)
        return PlainTextResponse("hello" if admitted else "quota exceeded", status_code=200 if admitted else 429)

    return Starlette(routes=[Route("/", hello), READY])
