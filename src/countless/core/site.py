"""A site: a cumulative count, a trigger, and the next count at which the trigger makes it report.

A site does not know which scheme it serves: it counts, and reports when `count >= next_at`. Every input returns the
messages it causes. Three rules make that safe on a network that loses, repeats and reorders messages:

| received                                            | effect                                                        |
|-----------------------------------------------------|---------------------------------------------------------------|
| a message of an earlier round                       | none                                                          |
| a `StartRound` again                                | the same `Snapshot` again, and the last report after it       |
| a `SetTrigger` again, or older than the one in force | none                                                          |
"""

from countless.core.messages import DownMessage, Report, SetTrigger, SiteId, Snapshot, UpMessage
from countless.core.random_source import RandomSource
from countless.core.triggers import EveryNth, Trigger
from countless.errors import InvalidParameter, ProtocolError

MAX_INCREMENT = 1 << 128  # however often it is added, the count stays within the wire format (255 bits) and a float
NO_MESSAGES: tuple[UpMessage, ...] = ()


def require_increment(n: object) -> None:
    """Raise InvalidParameter unless `n` is an integer from 0 to MAX_INCREMENT."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise InvalidParameter("n", n, "an integer")
    if n < 0:
        raise InvalidParameter("n", n, "at least 0 (a total never falls)")
    if n > MAX_INCREMENT:
        raise InvalidParameter("n", n, f"at most 2**128 = {MAX_INCREMENT}")


class Site:
    """One counter at one site.

    >>> from countless.randomness import SeededRandom
    >>> site = Site("requests", SiteId("web-1"), SeededRandom(1), trigger=EveryNth(10))
    >>> site.add(9)
    ()
    >>> site.add(25)
    (Report(counter='requests', round=0, count=30, crossings=3),)
    """

    __slots__ = (
        "_trigger_from",
        "_trigger_state",
        "count",
        "counter",
        "crossings",
        "next_at",
        "rng",
        "round",
        "site_id",
        "trigger",
    )

    def __init__(
        self, counter: str, site_id: SiteId, rng: RandomSource, *, trigger: Trigger | None = None, count: int = 0
    ) -> None:
        self.counter = counter
        self.site_id = site_id
        self.count = count
        self.round = 0
        self.crossings = 0
        self.rng = rng
        self._adopt(trigger or EveryNth(1), count)

    def __repr__(self) -> str:
        name, incarnation, _ = self.site_id
        return (
            f"<Site {name!r} incarnation {incarnation}: {self.count} in {self.counter!r}, round {self.round}, "
            f"{self.trigger!r}>"
        )

    def _adopt(self, trigger: Trigger, from_count: int) -> None:
        self.trigger = trigger
        self._trigger_from = from_count
        self._trigger_state = trigger.start(from_count, self.rng)
        self.next_at = self._trigger_state.next_at

    def add(self, n: int = 1) -> tuple[UpMessage, ...]:
        """Count `n` more events."""
        require_increment(n)
        return self.advance(self.count + n)

    def advance(self, count: int) -> tuple[UpMessage, ...]:
        """Raise the count to `count`. One report covers all points passed on the way; it carries the last of them."""
        if count < self.count:
            raise InvalidParameter("count", count, f"at least the present count {self.count}")
        self.count = count
        if count < self.next_at:
            return NO_MESSAGES
        state = self._trigger_state
        self.crossings += self.trigger.advance(count, state, self.rng)
        self.next_at = state.next_at
        return (Report(self.counter, self.round, state.last, self.crossings),)

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        """A message of the coordinator."""
        if message.counter != self.counter:
            raise ProtocolError(f"a message for counter {message.counter!r} reached a site of {self.counter!r}")
        if isinstance(message, SetTrigger):
            return self._set_trigger(message)
        if message.round < self.round:
            return NO_MESSAGES
        if message.round == self.round:
            return self.resend()
        self.round, self.crossings = message.round, 0
        self._adopt(message.trigger, self.count)
        return (self.snapshot(),)

    def _set_trigger(self, message: SetTrigger) -> tuple[UpMessage, ...]:
        received, in_force = (message.round, message.from_count), (self.round, self._trigger_from)
        if received < in_force or (received == in_force and message.trigger == self.trigger):
            return NO_MESSAGES
        if message.from_count > self.count:
            raise ProtocolError(f"the coordinator knows {message.from_count} of a site that has counted {self.count}")
        if message.round > self.round:
            self.round, self.crossings = message.round, 0
        self._adopt(message.trigger, message.from_count)
        return self.advance(self.count)

    def resend(self) -> tuple[UpMessage, ...]:
        """All that the coordinator may have missed in this round: for a new connection, or a repeated StartRound."""
        return (
            Snapshot(self.counter, self.round, self._trigger_from),
            Report(self.counter, self.round, self._trigger_state.last, self.crossings),
        )

    def snapshot(self) -> Snapshot:
        """The exact count: for joining and leaving."""
        return Snapshot(self.counter, self.round, self.count)
