"""Units that programs have reserved over HTTP.

A program may vanish before it says what it has used, so every hold expires. Its units count as spent then, because they
may have been used. A settled hold is remembered until its time is over, so that a request may be repeated.
"""

from collections.abc import Callable
from secrets import token_hex

from countless.agent.bodies import Refused
from countless.core.budget.hold import Hold

MAX_HOLDS = 10_000  # open, or settled a short time ago


class _Entry:
    def __init__(self, budget: str, hold: Hold) -> None:
        self.budget = budget
        self.hold = hold
        self.used: int | None = None  # once it is settled


class Holds:
    """The holds by their ids. `call_later(seconds, function)` calls it from the same thread."""

    def __init__(self) -> None:
        self.expired = 0
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def require_place(self) -> None:
        if len(self._entries) >= MAX_HOLDS:
            raise Refused(f"the agent has {MAX_HOLDS} holds, and takes no more until some have expired", 503)

    def add(self, budget: str, hold: Hold, expires_in_s: float, call_later: Callable[..., object]) -> str:
        """The id of the hold."""
        identity = token_hex(16)
        self._entries[identity] = _Entry(budget, hold)
        call_later(expires_in_s, self._expire, identity)
        return identity

    def settle(self, budget: str, identity: str, used: int) -> int:
        """End a hold; the units that are free again. The same request again has the same answer."""
        entry = self._entries.get(identity)
        if entry is None or entry.budget != budget:
            raise Refused(f"budget {budget!r} has no such hold: if it has expired, its units count as spent", 404)
        units = entry.hold.units
        if entry.used is None:
            if used > units:
                raise Refused(f"used = {used} is not allowed: it must be from 0 to {units}, the units of the hold")
            entry.hold.settle(used)
            entry.used = used
        elif entry.used != used:
            raise Refused(f"the hold was settled before, with used = {entry.used}", 409)
        return units - used

    def _expire(self, identity: str) -> None:
        entry = self._entries.pop(identity)
        if entry.used is None:
            self.expired += 1
            entry.hold.settle(entry.hold.units)
