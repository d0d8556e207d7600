"""The header fields `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11.

Both are lists of structured fields (RFC 9651): a policy's name as a string, with integers as parameters.
"""

from functools import lru_cache
from math import ceil

from countless.core.budget.rule import BudgetRule
from countless.errors import InvalidParameter

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
