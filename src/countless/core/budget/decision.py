"""The answer that a program gets to its request."""

from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    ALLOWED = "allowed"
    EXHAUSTED = "exhausted"  # the budget has not enough left
    STARVED = "starved"  # no answer in time
    UNREACHABLE = "unreachable"  # no connection to the coordinator


class Decision(NamedTuple):
    """True if the request was allowed. `retry_after`: seconds until it may succeed, if they are known."""

    reason: Reason
    retry_after: float | None = None

    def __bool__(self) -> bool:
        return self.reason is Reason.ALLOWED
