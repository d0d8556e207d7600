"""The answers that the coordinator awaits from one session, and the time that it waits.

Some messages must be answered: `StartRound`, recalls of budgets, and steps that a site has to confirm. Until that
happens the counter, budget or family waits, for all its sites. A heartbeat or a report is no answer.

Requests are checked in groups: when all of a group are answered, those that were made meanwhile are the next group. A
session is late if it has neither answered one of its group, nor joined, connected or disconnected, for `silent_after`.
So a slow site that has thousands of counters has time for all of them. And it is late if the group is MAX_GROUP_AGE
times that old: no site can delay an answer by giving others, or by connecting again and again.
"""

from collections.abc import Callable

from countless.wire.keys import Key

MAX_GROUP_AGE = 30  # times `silent_after`: at 5,000 answers a second a site with 20,000 counters needs 4 s


AwaitedRound = Callable[[Key], int | None]  # the first round that was not answered; None: nothing is awaited


class AwaitedAnswers:
    """Time is what its owner says it is. An answer shows in the state of the core: see `AwaitedRound`."""

    __slots__ = ("_asked", "_group", "_group_began", "_moved", "_moved_at")

    def __init__(self) -> None:
        self._asked: dict[Key, None] = {}  # since the group began
        self._group: list[tuple[Key, int | None]] = []  # the oldest last, with the round that was awaited
        self._group_began = self._moved_at = 0.0
        self._moved = False  # since the last check

    def __bool__(self) -> bool:
        return bool(self._group or self._asked)

    @property
    def oldest(self) -> Key:
        return self._group[-1][0]

    def ask(self, request: Key) -> None:
        """A request was made. One that is repeated, or replaced by that of a later round, is as old as the first."""
        self._asked[request] = None

    def note_progress(self) -> None:
        """The site has joined something, or its connection is new, or lost."""
        self._moved = True

    def is_late(self, now: float, limit: float, awaited_round: AwaitedRound) -> bool:
        """To be called often."""
        if not self._group:
            self._group = [(request, awaited_round(request)) for request in reversed(self._asked)]
            self._asked = {}
            self._group_began, self._moved = now, True
        size = len(self._group)
        while self._group and _is_answered(*self._group[-1], awaited_round):
            self._group.pop()
        if len(self._group) == size and now - self._moved_at > limit:  # perhaps it answers in another order
            self._group = [each for each in self._group if not _is_answered(*each, awaited_round)]
        if self._moved or len(self._group) < size:
            self._moved, self._moved_at = False, now
        age = now - self._group_began
        return bool(self._group) and (now - self._moved_at > limit or age > MAX_GROUP_AGE * limit)


def _is_answered(request: Key, round: int | None, awaited_round: AwaitedRound) -> bool:
    return round is None or awaited_round(request) != round
