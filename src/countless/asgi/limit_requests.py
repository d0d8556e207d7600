"""ASGI middleware: admits requests while a budget lasts, over all replicas of an application.

    app.add_middleware(LimitRequests, client=countless.connect(), budget="keys/{key}", key=header_key("x-api-key"))

docs/start/limit-requests.md has the answers, header fields and options.
"""

import json
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from math import ceil

from countless.asgi.count_requests import App, Message, Receive, Scope, Send
from countless.client.budgets.client_budget import ClientBudget
from countless.client.budgets.requests import WAIT_S
from countless.client.client import Client
from countless.client.http_requests import SparseLog
from countless.core.budget.decision import Reason
from countless.core.budget.rule import BudgetRule
from countless.core.parameters import require_bool, require_seconds
from countless.errors import AboveLimit, InvalidParameter, UnknownBudget

ON_UNREACHABLE = ("refuse", "allow")
RETRY_S = 1  # after a request that was refused because nothing answered
# Beside the reasons of a decision:
NO_BUDGET = "no_budget"  # the coordinator has none of this name
ABOVE_LIMIT = "above_limit"  # the request costs more than the limit: it cannot be admitted later either
_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"

Fields = list[tuple[bytes, bytes]]


def header_key(header: str, missing: str = "anonymous") -> Callable[[Scope], str]:
    """Return a key function: 16 digits of the hash of a header. API keys are secret; names of budgets are not.

    Requests without the header have the key `missing`.
    """
    name = header.lower().encode()

    def key(scope: Scope) -> str:
        value = next((value for each, value in scope["headers"] if each == name), None)
        return missing if value is None else sha256(value).hexdigest()[:16]

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
        wait: Seconds to wait for the coordinator, if this process has too few units.
        on_unreachable: While the quota is unknown, `refuse` answers 503 and `allow` admits.
        shadow: Admit everything; count and log what would have been refused.
        policy: Name of the limit in `RateLimit` fields, logs and the counter.
        counter: Name of a counter of the requests that were not admitted, by policy, reason and mode.
    """

    def __init__(
        self,
        app: App,
        client: Client,
        budget: str,
        *,
        key: Callable[[Scope], str | None] | None = None,
        cost: Callable[[Scope], int] | None = None,
        wait: float = WAIT_S,
        on_unreachable: str = "refuse",
        shadow: bool = False,
        policy: str = "default",
        counter: str = "limited_requests",
    ) -> None:
        if ("{key}" in budget) is not (key is not None):
            raise InvalidParameter("budget", budget, "a name with {key} if a key is given, and without it otherwise")
        if on_unreachable not in ON_UNREACHABLE:
            raise InvalidParameter("on_unreachable", on_unreachable, f"one of: {', '.join(ON_UNREACHABLE)}")
        for parameter, function in (("key", key), ("cost", cost)):
            if function is not None and not callable(function):
                raise InvalidParameter(parameter, function, "a function of the scope")
        require_seconds("wait", wait)
        require_bool("shadow", shadow)
        self._app = app
        self._client = client
        self._budget = budget
        self._create = (
            f"create the rule: countless budget create '{budget.replace('{key}', '*')}' --limit N --per minute"
        )
        self._key = key or (lambda scope: "")
        self._cost = cost or (lambda scope: 1)
        self._wait = wait
        self._allow_unreachable = on_unreachable == "allow"
        self._shadow = shadow
        self._policy = require_policy(policy)
        self._not_admitted = client.counter(counter)
        self._log = SparseLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        key, cost = self._key(scope), self._cost(scope)
        if key is None or cost == 0:
            return await self._app(scope, receive, send)
        try:
            budget = self._budget_of(key)
        except InvalidParameter as problem:
            title = f"the name of the budget of this request must be {problem.allowed}"
            return await _send_problem(send, 400, {"type": "about:blank", "title": title}, [])
        reason, detail = await self._decide(budget, cost)
        if reason == Reason.ALLOWED:
            return await self._app(scope, receive, send if self._shadow else self._add_fields(budget, send))
        passes = self._shadow or (self._allow_unreachable and reason not in (Reason.EXHAUSTED, ABOVE_LIMIT))
        self._record(budget.name, reason, detail, passes)
        if passes:
            return await self._app(scope, receive, send)
        return await self._refuse(send, budget, reason, cost)

    def _budget_of(self, key: str) -> ClientBudget:
        if not key and "{key}" in self._budget:
            raise InvalidParameter("key", key, "one with a key, which this request has not")
        return self._client.budget(self._budget.replace("{key}", key))

    async def _decide(self, budget: ClientBudget, cost: int) -> tuple[str, str]:
        """The reason, and what the log says of it."""
        try:
            return (await budget.atake(cost, self._wait)).reason, ""
        except UnknownBudget as problem:
            return NO_BUDGET, f": {problem}; {self._create}"
        except AboveLimit as problem:
            return ABOVE_LIMIT, f": {problem}"

    def _record(self, budget: str, reason: str, detail: str, passes: bool) -> None:
        mode = "shadow" if self._shadow else "let_through" if passes else "enforced"
        self._not_admitted.labels(policy=self._policy, reason=reason, mode=mode).inc()
        expected = reason == Reason.EXHAUSTED and mode == "enforced"
        self._log.log(
            logging.INFO if expected else logging.WARNING,
            "request not admitted: mode=%s policy=%s budget=%s reason=%s%s",
            mode,
            self._policy,
            budget,
            reason,
            detail,
        )

    def _add_fields(self, budget: ClientBudget, send: Send) -> Send:
        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                fields = self._fields(budget, max(1, budget.remaining))  # the other replicas may have more
                message = {**message, "headers": [*message.get("headers", ()), *fields]}
            await send(message)

        return send_with_fields

    def _fields(self, budget: ClientBudget, available: int) -> Fields:
        rule = budget.rule
        if rule is None:  # of an earlier coordinator
            return []
        policy = policy_field(self._policy, rule.limit, _window_s(rule, budget.resets_at))
        limit = limit_field(self._policy, available, _retry_s(budget, 1))
        return [(b"ratelimit-policy", policy.encode()), (b"ratelimit", limit.encode())]

    async def _refuse(self, send: Send, budget: ClientBudget, reason: str, cost: int) -> None:
        if reason == ABOVE_LIMIT:
            status, kind, title = 429, "quota-exceeded", "this request costs more than its whole quota"
            fields, retry = self._fields(budget, 0), None
        elif reason == Reason.EXHAUSTED:
            status, kind, title = 429, "quota-exceeded", "quota exceeded"
            fields, retry = self._fields(budget, 0), _retry_s(budget, cost)
        else:
            status, kind, title = 503, "temporary-reduced-capacity", "quota temporarily unavailable"
            fields, retry = [], RETRY_S
        if retry is not None:
            fields.append((b"retry-after", str(retry).encode()))
        content = {"type": _PROBLEM_TYPES + kind, "title": title, "violated-policies": [self._policy]}
        await _send_problem(send, status, content, fields)


def _retry_s(budget: ClientBudget, cost: int) -> int | None:
    seconds = budget.retry_after(cost)
    return None if seconds is None else ceil(seconds)


@lru_cache(maxsize=64)
def _window_s(rule: BudgetRule, resets_at: float | None) -> int | None:
    """The rolling window, or the length of the period that ends then: days may have 23 or 25 hours, months differ."""
    if rule.rolling is not None:
        return ceil(rule.rolling)
    calendar = rule.calendar
    if calendar is None or resets_at is None:
        return None
    start, end = calendar.bounds(calendar.period_at(resets_at - 1))
    return end - start


async def _send_problem(send: Send, status: int, content: Mapping[str, object], fields: Fields) -> None:
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *fields,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# The header fields `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11: lists of structured
# fields (RFC 9651), a policy's name as a string with integers as parameters

MAX_INTEGER = 999_999_999_999_999  # of a structured field


def require_policy(policy: str) -> str:
    """Return the name of a policy that can stand in a field as it is, between quotes."""
    if not policy or not policy.isascii() or not policy.isprintable() or "\\" in policy or '"' in policy:
        raise InvalidParameter("policy", policy, "printable ASCII characters without quotes and backslashes")
    return policy


def policy_field(policy: str, quota: int, window_s: int | None) -> str:
    """
    >>> policy_field("default", 100, 60)
    '"default";q=100;w=60'
    """
    window = "" if window_s is None else f";w={window_s}"
    return f'"{policy}";q={min(quota, MAX_INTEGER)}{window}'


def limit_field(policy: str, available: int, effective_s: int | None) -> str:
    """
    >>> limit_field("default", 42, 17)
    '"default";r=42;t=17'
    """
    effective = "" if effective_s is None else f";t={effective_s}"
    return f'"{policy}";r={min(available, MAX_INTEGER)}{effective}'
