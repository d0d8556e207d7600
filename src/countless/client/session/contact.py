"""The last certain contact with the coordinator: the time when the last Sync was sent that it answered.

Time that an answer spends on its way does not count, so a process that was stopped for a day does not take an answer
that waited for it as new. Rolling budgets depend on it: without a contact for the length of their lease they admit
nothing.
"""

from collections import deque
from math import inf

from countless.core.budget.rule import MIN_LEASE_S

CONTACT_S = MIN_LEASE_S / 3  # a Sync is sent so often while leases depend on the answers


class Contact:
    def __init__(self) -> None:
        self.at = -inf
        self.last_sync = -inf
        self._unanswered: deque[float] = deque()  # when they were sent, on the present stream

    def new_stream(self) -> None:
        self._unanswered.clear()

    def sync_sent(self, now: float) -> None:
        self.last_sync = now
        self._unanswered.append(now)

    def sync_answered(self, now: float) -> bool:
        """Answers arrive in the order of the Syncs. Returns whether a lease may have ended since the last one."""
        before = self.at
        if self._unanswered:
            self.at = self._unanswered.popleft()
        return now - before >= MIN_LEASE_S

    @property
    def unanswered(self) -> int:
        """The number of Syncs of the current stream that have no answer yet."""
        return len(self._unanswered)

    @property
    def due(self) -> float:
        """The time at which the next Sync must be sent."""
        return self.last_sync + CONTACT_S
