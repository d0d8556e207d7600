"""The whole client of Countless, thread and all, for trials in which somebody is killed and comes back."""

import logging
from inspect import signature
from typing import Any

import countless
from race.contestants.base import Bill, Case, Fleet, News, name_of
from race.workloads import Event

CAN_KEEP = "state_dir" in signature(countless.connect).parameters  # whether clients can keep their counts in files
_LOG = logging.getLogger("countless")


class ClientFleet(Fleet):
    """`countless.connect`, once for each site."""

    def __init__(self, address: str, case: Case, **options: Any) -> None:
        self._level = _LOG.level
        _LOG.setLevel(logging.ERROR)  # that there is no coordinator for a while is the point
        self._clients = [countless.connect(address, site=f"site-{site}", **options) for site in range(case.sites)]

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
        _LOG.setLevel(self._level)


class KeptFleet(ClientFleet):
    """The same with a `state_dir`: what a killed process could not deliver is delivered by the next one."""

    def __init__(self, address: str, case: Case) -> None:
        super().__init__(address, case, state_dir=case.folder)
