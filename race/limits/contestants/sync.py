"""Periodic sync: a site counts locally, and decides on its own count and the last total that it saw.

At every tick each site adds its count to the total in Redis, and reads the total, in one INCRBY. All sites send, then
all read: one site does not wait for another.
"""

from typing import Any

import redis

from race.limits.contestants.base import Case, Outcome
from race.limits.contestants.local import LocalFleet


class SyncFleet(LocalFleet):
    """A connection for each site."""

    def __init__(self, address: str, case: Case) -> None:
        self._connections: list[Any] = [
            redis.Connection(port=int(address))  # type: ignore[no-untyped-call]
            for _ in range(case.sites)
        ]
        self._case = case
        self._total = [0] * case.sites  # as last seen
        self._delta = [0] * case.sites  # since then
        self._away = False

    def take(self, site: int, units: int) -> Outcome:
        if self._total[site] + self._delta[site] + units > self._case.limit:
            return Outcome.REFUSED
        self._delta[site] += units
        return Outcome.ALLOWED

    def give_back(self, site: int, units: int) -> None:
        self._delta[site] -= units

    def set_away(self, away: bool) -> None:
        self._away = away
        for connection in self._connections:
            connection.disconnect()

    def tick(self) -> None:
        if self._away:
            return
        for connection, delta in zip(self._connections, self._delta, strict=True):
            connection.send_command("INCRBY", self._case.name, delta)
        for site, connection in enumerate(self._connections):
            self._total[site] = int(connection.read_response())
            self._delta[site] = 0

    def close(self) -> None:
        for connection in self._connections:
            connection.disconnect()
