"""Block leases on Redis: a site takes a block of units by an atomic script, and spends it without a message.

A block is L/(10 k) units. Blocks are not returned: if every site but one has a whole block left when the last one is
taken, about a tenth of the limit is lost, and never more. Smaller blocks lose less and cost more messages. A site
remembers that too few units were left, so later requests of that size cost no message.
"""

import math

import redis

from race.limits.contestants.base import Case, Outcome
from race.limits.contestants.connections import connect
from race.limits.contestants.local import LocalFleet

BLOCKS_PER_SITE = 10

LEASE = """
local leased = tonumber(redis.call('GET', KEYS[1]) or '0')
local needed, block, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local units = math.min(math.max(needed, block), limit - leased)
if units < needed then
    return 0
end
redis.call('INCRBY', KEYS[1], units)
return units
"""


class LeaseFleet(LocalFleet):
    """A connection for each site."""

    def __init__(self, address: str, case: Case) -> None:
        self._clients = [connect(address) for _ in range(case.sites)]
        self._scripts = [client.register_script(LEASE) for client in self._clients]
        self._case = case
        self._block = max(1, case.limit // (BLOCKS_PER_SITE * case.sites))
        self._room = [0] * case.sites
        self._refused_from: list[float] = [math.inf] * case.sites

    def take(self, site: int, units: int) -> Outcome:
        missing = units - self._room[site]
        if missing > 0:
            if missing >= self._refused_from[site]:
                return Outcome.REFUSED
            try:
                leased = int(self._scripts[site]([self._case.name], [missing, self._block, self._case.limit]))
            except redis.ConnectionError:
                return Outcome.UNDECIDED
            if not leased:
                self._refused_from[site] = missing
                return Outcome.REFUSED
            self._room[site] += leased
        self._room[site] -= units
        return Outcome.ALLOWED

    def give_back(self, site: int, units: int) -> None:
        self._room[site] += units

    def close(self) -> None:
        for client in self._clients:
            client.close()
