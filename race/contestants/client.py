"""The whole client of Countless, thread and all, for the trial in which the coordinator is killed and comes back."""

import logging

import countless
from race.contestants.base import Bill, Case, Fleet, News, name_of
from race.workloads import Event

logging.getLogger("countless").setLevel(logging.ERROR)  # that there is no coordinator for a while is the point


class ClientFleet(Fleet):
    """`countless.connect`, once for each site."""

    def __init__(self, address: str, case: Case) -> None:
        self._clients = [countless.connect(address, site=f"site-{site}") for site in range(case.sites)]

    def count(self, event: Event) -> News:
        """As programs do."""
        client = self._clients[event.site]
        for counter in event.counters:
            client.counter(name_of(counter)).add()
        return []

    def settle(self) -> None:
        """Everything that is due arrives, and what follows from it too."""
        for _ in range(2):
            for client in self._clients:
                client.flush(60)

    def bill(self) -> Bill:
        """Not measured here."""
        return Bill(0, 0)

    def close(self) -> None:
        """As at the end of a program: the exact counts are delivered."""
        for client in self._clients:
            client.close(60)
