"""A site: a cumulative count, a pace, and the next count at which to speak (SPEC section 2).

A site does not know which scheme it serves. Its whole life is `count += n; if count >= next_at: speak`, and every input
returns the messages it causes. Rules that make it safe on a real network:

- what it says is cumulative: saying it twice, or not at all, does no harm as long as something is said later;
- a message of an earlier round, or a `SetTrigger` older than the one in force, changes nothing;
- a repeated `StartRound` gets the same `Snapshot` again, and the report that may have been lost with the first.
"""

from countless.core.messages import DownMessage, Report, SetTrigger, SiteId, Snapshot, UpMessage
from countless.core.random_source import RandomSource
from countless.core.triggers import EveryNth, Trigger
from countless.errors import InvalidParameter, ProtocolError

MAX_INCREMENT = 1 << 128  # no count can then outgrow the wire (255 bits) or a float, however often it is added

_SILENCE: tuple[UpMessage, ...] = ()
_new = tuple.__new__  # makes a message in half the time of the constructor that Python wrote for it


def require_increment(n: object) -> None:
    """Refuse what cannot be counted: the total never falls, and events are whole."""
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
        "_adopted",
        "_rng",
        "_trigger_state",
        "count",
        "counter",
        "crossings",
        "next_at",
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
        self._rng = rng
        self._adopt(trigger or EveryNth(1), count)

    def __repr__(self) -> str:
        name, life = self.site_id
        return f"<Site {name!r} life {life}: {self.count} in {self.counter!r}, round {self.round}, {self.trigger!r}>"

    def _adopt(self, trigger: Trigger, from_count: int) -> None:
        self.trigger = trigger
        self._adopted = from_count
        self._trigger_state = state = trigger.start(from_count, self._rng)
        self.next_at = state[0]

    def _report(self) -> Report:
        return Report(self.counter, self.round, self._trigger_state[1], self.crossings)

    def add(self, n: int = 1) -> tuple[UpMessage, ...]:
        """`n` more events have happened here."""
        require_increment(n)
        return self.advance(self.count + n)

    def advance(self, count: int) -> tuple[UpMessage, ...]:
        """The count has grown to `count`; one report covers however many points that passes, and ends at the last."""
        if count < self.count:
            raise InvalidParameter("count", count, f"at least the present count {self.count}")
        self.count = count
        if count < self.next_at:
            return _SILENCE
        self._trigger_state = state = self.trigger.advance(count, self._trigger_state, self._rng)
        self.next_at, last, passed, _ = state
        self.crossings = crossings = self.crossings + passed
        return (_new(Report, (self.counter, self.round, last, crossings)),)

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        """The coordinator spoke."""
        if isinstance(message, SetTrigger):
            return self._repace(message)
        counter, number, trigger = message
        if counter != self.counter:
            raise self._not_for_me(counter)
        if number <= self.round:
            return self.resend() if number == self.round else _SILENCE
        self.round, self.crossings, count = number, 0, self.count
        self.trigger, self._adopted = trigger, count  # `_adopt`, without the call
        self._trigger_state = state = trigger.start(count, self._rng)
        self.next_at = state[0]
        return (_new(Snapshot, (counter, number, count)),)

    def _not_for_me(self, counter: str) -> ProtocolError:
        return ProtocolError(f"a message for counter {counter!r} reached a site of {self.counter!r}")

    def _repace(self, message: SetTrigger) -> tuple[UpMessage, ...]:
        if message.counter != self.counter:
            raise self._not_for_me(message.counter)
        outdated = message.round < self.round or (message.round == self.round and message.from_count < self._adopted)
        repeated = (message.round, message.from_count, message.trigger) == (self.round, self._adopted, self.trigger)
        if outdated or repeated:
            return _SILENCE
        if message.from_count > self.count:
            raise ProtocolError(f"the coordinator knows {message.from_count} of a site that has counted {self.count}")
        if message.round > self.round:
            self.round, self.crossings = message.round, 0
        self._adopt(message.trigger, message.from_count)
        return self.advance(self.count)

    def resend(self) -> tuple[UpMessage, ...]:
        """Say again all that the coordinator may have missed, after a reconnection or when asked twice."""
        return (Snapshot(self.counter, self.round, self._adopted), self._report())

    def snapshot(self) -> Snapshot:
        """The exact count with which this site comes or goes."""
        return Snapshot(self.counter, self.round, self.count)
