"""statsd: one UDP datagram for each event, summed up by the receiver and flushed every 10 seconds, its default.

Virtual time runs faster than real time. So that only a burst can overflow the receiver's socket, the receiver may catch
up whenever virtual time has advanced by a hundredth of a second.
"""

from statsd import StatsClient  # type: ignore[import-untyped]

from race.contestants.base import Answers, Case, Contestant, Fleet, Traffic, counter_name
from race.contestants.collected import Control, FlushingBackend
from race.workloads import Event

_CATCH_UP_S = 0.01  # virtual time


class StatsdFleet(Fleet):
    """One socket for each site."""

    def __init__(self, address: str, case: Case) -> None:
        _, port, control = map(int, address.split(":"))
        self._clients = [StatsClient("127.0.0.1", port) for _ in range(case.sites)]
        self._control = Control(control)
        self._caught_up = 0.0
        self._sent = 0

    def count(self, event: Event) -> Answers:
        if event.time - self._caught_up > _CATCH_UP_S:
            self._control.ask("drain")
            self._caught_up = event.time
        client = self._clients[event.site]
        for counter in event.counters:
            client.incr(counter_name(counter))
        self._sent += len(event.counters)
        return []

    def traffic(self) -> Traffic:
        self._control.ask("drain")
        received, _ = self._control.ask("traffic")
        return Traffic(self._sent - received, 0, dropped=self._sent - received)

    def close(self) -> None:
        self._control.close()
        for client in self._clients:
            client.close()


STATSD = Contestant("statsd (UDP, 10 s)", FlushingBackend, StatsdFleet, 10.0)
