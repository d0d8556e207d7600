"""Units that programs have reserved over HTTP, by the ids that they settle them with.

A settled hold is remembered for a while, so that a request may be repeated.
"""

from collections.abc import Callable
from secrets import token_hex
from typing import Protocol

from countless.agent.bodies import Refused
from countless.core.budget.hold import Hold
from countless.errors import HoldExpired

MAX_HOLDS = 10_000  # open, or settled a short time ago
REPEATED_S = 60.0


class Timer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[..., Timer]  # call_later(seconds, function, argument) calls it from the same thread


class _Entry:
    def __init__(self, budget: str, hold: Hold) -> None:
        self.budget = budget
        self.hold = hold
        self.used: int | None = None  # once it is settled
        self.timer: Timer | None = None  # it is forgotten then


class Holds:
    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def require_place(self) -> None:
        if len(self._entries) >= MAX_HOLDS:
            raise Refused(f"the agent has {MAX_HOLDS} holds, and takes no more until some are settled or expired", 503)

    def add(self, budget: str, hold: Hold) -> str:
        """The id of the hold."""
        identity = token_hex(16)
        entry = self._entries[identity] = _Entry(budget, hold)
        if hold.expires_in is not None:
            entry.timer = self._call_later(hold.expires_in, self._forget, identity)
        return identity

    def settle(self, budget: str, identity: str, used: int) -> int:
        """End a hold; the units that are free again. The same request again has the same answer."""
        entry = self._entries.get(identity)
        if entry is None or entry.budget != budget:
            raise _no_hold(budget)
        units = entry.hold.units
        if entry.used is None:
            if used > units:
                raise Refused(f"used = {used} is not allowed: it must be from 0 to {units}, the units of the hold")
            try:
                entry.hold.settle(used)
            except HoldExpired:
                raise _no_hold(budget) from None
            entry.used = used
            if entry.timer is not None:
                entry.timer.cancel()
            self._call_later(REPEATED_S, self._forget, identity)
        elif entry.used != used:
            raise Refused(f"the hold was settled before, with used = {entry.used}", 409)
        return units - used

    def _forget(self, identity: str) -> None:
        del self._entries[identity]


def _no_hold(budget: str) -> Refused:
    return Refused(f"budget {budget!r} has no such hold: if it has expired, its units count as spent", 404)
