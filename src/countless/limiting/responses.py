"""Header fields and refusals, as the caller of a limited request sees them.

`RateLimit-Policy` and `RateLimit` are those of draft-ietf-httpapi-ratelimit-headers-11: lists of structured fields
(RFC 9651), with a policy's name as a string and integers as parameters. A refusal has problem details (RFC 9457).
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from countless.client.budgets.client_budget import ClientBudget
from countless.core.budget.decision import Reason
from countless.core.budget.rule import BudgetRule
from countless.errors import AboveLimit, BudgetRefused, InvalidParameter, LimitExceeded, Starved, UnknownBudget

MAX_INTEGER = 999_999_999_999_999  # of a structured field
RETRY_S = 1  # after a request that was refused because nothing answered
# Beside the reasons of a decision:
NO_BUDGET = "no_budget"  # the coordinator has none of this name
ABOVE_LIMIT = "above_limit"  # the request costs more than the limit: it cannot be admitted later either
INVALID = "invalid"  # the key makes no name, or the cost no number of units
USED_UP = (Reason.EXHAUSTED, ABOVE_LIMIT)
_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"

Header = tuple[str, str]
Headers = list[Header]
Problem = BudgetRefused | InvalidParameter
PROBLEMS = (BudgetRefused, InvalidParameter)


class Refusal(NamedTuple):
    """The answer to a request that was not admitted."""

    status: int
    title: str
    body: bytes
    headers: Headers


def reason_of(problem: Problem) -> str:
    """As logs and the counter show it."""
    kinds = {
        LimitExceeded: Reason.EXHAUSTED, Starved: Reason.STARVED, UnknownBudget: NO_BUDGET,
        AboveLimit: ABOVE_LIMIT, InvalidParameter: INVALID,
    }  # fmt: skip
    return next((reason for kind, reason in kinds.items() if isinstance(problem, kind)), Reason.UNREACHABLE)


def refusal_for(problem: Problem, fields: Sequence[Header] = (), policies: Sequence[str] = ()) -> Refusal:
    """Return the answer to a request that was refused with this error. `fields`: what `rate_limit_fields` returns."""
    reason = reason_of(problem)
    if reason == INVALID and (allowed := getattr(problem, "allowed", "")):  # without: the kind of the rule is wrong
        parameter = getattr(problem, "parameter", "")
        what = {"n": "cost", "budget": "name of the budget"}.get(parameter, parameter)
        title = f"the {what} of this request must be {allowed}"
        return _refusal(400, {"type": "about:blank", "title": title}, [])
    retry: float | None
    if reason in USED_UP:
        status, kind, retry = 429, "quota-exceeded", getattr(problem, "retry_after", None)
        title = "quota exceeded" if reason == Reason.EXHAUSTED else "this request costs more than its whole quota"
    else:
        status, kind, retry = 503, "temporary-reduced-capacity", RETRY_S
        title = "quota temporarily unavailable"
    headers = fields if retry is None else [*fields, ("retry-after", str(ceil(retry)))]
    violated = {"violated-policies": policies} if policies else {}
    return _refusal(status, {"type": _PROBLEM_TYPES + kind, "title": title, **violated}, headers)


def _refusal(status: int, content: Mapping[str, object], headers: Sequence[Header]) -> Refusal:
    body = json.dumps(content).encode()
    own = [("content-type", "application/problem+json"), ("content-length", str(len(body)))]
    return Refusal(status, str(content["title"]), body, [*own, ("cache-control", "no-store"), *headers])


def rate_limit_fields(policy: str, budget: ClientBudget, available: int) -> Headers:
    rule, retry = budget.rule, budget.retry_after()
    if rule is None:  # of an earlier coordinator
        return []
    seconds = None if retry is None else ceil(retry)
    return [
        ("ratelimit-policy", item(policy, q=rule.limit, w=window_s(rule, budget.resets_at))),
        ("ratelimit", item(policy, r=available, t=seconds)),
    ]


def require_policy(policy: str) -> str:
    """Return the name of a policy that can stand in a field as it is, between quotes."""
    if not policy or not policy.isascii() or not policy.isprintable() or "\\" in policy or '"' in policy:
        raise InvalidParameter("policy", policy, "printable ASCII characters without quotes and backslashes")
    return policy


def item(policy: str, **parameters: int | None) -> str:
    """
    >>> item("default", r=42, t=17), item("default", q=100, w=None)
    ('"default";r=42;t=17', '"default";q=100')
    """
    integers = {name: min(value, MAX_INTEGER) for name, value in parameters.items() if value is not None}
    return f'"{policy}"' + "".join(f";{name}={value}" for name, value in integers.items())


@lru_cache(maxsize=64)
def window_s(rule: BudgetRule, resets_at: float | None) -> int | None:
    """The rolling window, or the length of the period that ends then: days may have 23 or 25 hours, months differ."""
    if rule.rolling is not None:
        return ceil(rule.rolling)
    calendar = rule.calendar
    if calendar is None or resets_at is None:
        return None
    start, end = calendar.bounds(calendar.period_at(resets_at - 1))
    return end - start
