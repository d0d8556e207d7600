"""statsd: one UDP datagram for each event, summed up by the receiver and flushed every 10 seconds, its default.

Virtual time runs faster than real time; so that only a burst can overflow the receiver's socket, and not the race's own
haste, the receiver may catch up whenever virtual time has moved on by a hundredth of a second.
"""

from statsd import StatsClient  # type: ignore[import-untyped]

from race.contestants.base import Bill, Case, Contestant, Fleet, News, name_of
from race.contestants.collected import FlushingBackend, Questions
from race.workloads import Event

_BREATH = 0.01  # virtual seconds


class StatsdFleet(Fleet):
    """One socket for each site."""

    def __init__(self, address: str, case: Case) -> None:
        _, port, control = map(int, address.split(":"))
        self._clients = [StatsClient("127.0.0.1", port) for _ in range(case.sites)]
        self._questions = Questions(control)
        self._caught_up = 0.0
        self._sent = 0

    def count(self, event: Event) -> News:
        """Sent and forgotten."""
        if event.time - self._caught_up > _BREATH:
            self._questions.ask("drain")
            self._caught_up = event.time
        client = self._clients[event.site]
        for counter in event.counters:
            client.incr(name_of(counter))
        self._sent += len(event.counters)
        return []

    def bill(self) -> Bill:
        """Messages as sent; what did not arrive was dropped."""
        self._questions.ask("drain")
        received, _ = self._questions.ask("bill")
        return Bill(self._sent - received, 0, dropped=self._sent - received)

    def close(self) -> None:
        """Close the sockets."""
        self._questions.close()
        for client in self._clients:
            client.close()


STATSD = Contestant("statsd (UDP, 10 s)", FlushingBackend, StatsdFleet, 10.0)
