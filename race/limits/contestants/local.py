"""What contestants that count at the site have in common: a hold is units that are taken, and partly given back."""

from abc import abstractmethod

from race.limits.contestants.base import Case, Fleet, Outcome
from race.limits.workloads import Request


class LocalFleet(Fleet):
    def reserve(self, request: Request) -> Outcome:
        return self.take(request.site, request.units)

    def settle(self, request: Request) -> None:
        self.give_back(request.site, request.units - request.used)

    @abstractmethod
    def give_back(self, site: int, units: int) -> None: ...


class ShareFleet(LocalFleet):
    """L/k for each site, and no messages."""

    def __init__(self, address: str, case: Case) -> None:
        share, more = divmod(case.limit, case.sites)
        self._room = [share + (site < more) for site in range(case.sites)]

    def take(self, site: int, units: int) -> Outcome:
        if units > self._room[site]:
            return Outcome.REFUSED
        self._room[site] -= units
        return Outcome.ALLOWED

    def give_back(self, site: int, units: int) -> None:
        self._room[site] += units
