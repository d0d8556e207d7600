"""ASGI middleware: admits requests while a budget lasts, over all replicas of an application.

    app.add_middleware(LimitRequests, client=countless.connect(), budget="keys/{key}", key=header_key("x-api-key"))

docs/start/limit-requests.md has the answers, header fields and options.
"""

from collections.abc import Callable, Iterable
from typing import Unpack

from countless.asgi.count_requests import App, Message, Receive, Scope, Send
from countless.client.client import Client
from countless.limiting.charge import KeyAndCost, digest
from countless.limiting.limit import Limit, Options, refusal_of
from countless.limiting.responses import PROBLEMS, Headers, Refusal


def header_key(header: str, missing: str = "anonymous") -> Callable[[Scope], str]:
    """Return a key function: 16 digits of the hash of a header. API keys are secret; names of budgets are not.

    Requests without the header have the key `missing`.
    """
    name = header.lower().encode()

    def key(scope: Scope) -> str:
        value = next((value for each, value in scope["headers"] if each == name), None)
        return missing if value is None else digest(value)

    return key


class LimitRequests:
    """ASGI middleware that takes units of a budget for each request, and refuses the request if none are left.

    Args:
        app: The application.
        client: From `connect`.
        budget: Name of the budget; `{key}` in it is replaced by the request's key.
        key: A function of the scope that returns the key, such as `header_key("x-api-key")`. It returns None for
            requests that are not limited.
        cost: A function of the scope that returns the units the request costs, 0 for a free one. None: 1 for all.
        options: `wait`, `timeout`, `on_unreachable`, `shadow`, `policy` and `counter` of `limited`.
    """

    def __init__(
        self,
        app: App,
        client: Client,
        budget: str,
        *,
        key: Callable[[Scope], object] | None = None,
        cost: Callable[[Scope], int] | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._limit = Limit(client, budget, **options)
        self._requests = KeyAndCost(budget, key, cost)
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        values, cost = self._requests.units(scope)
        try:
            budget = await self._limit.atake(values, cost)
        except PROBLEMS as problem:
            return await _send(send, refusal_of(problem))
        if budget is None:
            return await self._app(scope, receive, send)

        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                fields = _encoded(self._limit.headers(budget))
                message = {**message, "headers": [*message.get("headers", ()), *fields]}
            await send(message)

        return await self._app(scope, receive, send_with_fields)


def _encoded(headers: Headers) -> Iterable[tuple[bytes, bytes]]:
    return ((name.encode(), value.encode()) for name, value in headers)


async def _send(send: Send, refusal: Refusal) -> None:
    headers = list(_encoded(refusal.headers))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body})
