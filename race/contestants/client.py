"""The whole client of Countless with its thread, for trials in which a process is killed and restarted."""

import logging
from typing import Any

import countless
from race.contestants.base import Answers, Case, Fleet, counter_name
from race.workloads import Event

_LOG = logging.getLogger("countless")


class ClientFleet(Fleet):
    """`countless.connect`, once for each site."""

    def __init__(self, address: str, case: Case, **options: Any) -> None:
        self._level = _LOG.level
        _LOG.setLevel(logging.ERROR)  # the coordinator is killed on purpose
        self._clients = [countless.connect(address, site=f"site-{site}", **options) for site in range(case.sites)]

    def count(self, event: Event) -> Answers:
        client = self._clients[event.site]
        for counter in event.counters:
            client.counter(counter_name(counter)).add()
        return []

    def flush(self) -> None:
        for _ in range(2):
            for client in self._clients:
                client.flush(60)

    def close(self) -> None:
        for client in self._clients:
            client.close(60)
        _LOG.setLevel(self._level)


class DurableFleet(ClientFleet):
    """The same with a `state_dir`: the next process delivers what a killed one could not."""

    def __init__(self, address: str, case: Case) -> None:
        super().__init__(address, case, state_dir=case.folder)
