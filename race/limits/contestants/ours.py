"""Budgets of Countless: a real `countless serve`, and `countless.connect` with its thread, once for each site."""

import logging

import countless
from countless.client.api import ApiClient
from countless.core.budget.decision import Reason
from countless.core.budget.hold import Hold
from countless.errors import LimitExceeded, Starved, Unreachable
from race.contestants.base import Case as CountingCase
from race.contestants.coordinator import CoordinatorBackend
from race.limits.contestants.base import Case, Fleet, Outcome
from race.limits.workloads import Request

WAIT_S = 60.0  # for the coordinator, while there is one
_LOG = logging.getLogger("countless")


def coordinator() -> CoordinatorBackend:
    return CoordinatorBackend(CountingCase(1, 1), real_time=True)


class BudgetFleet(Fleet):
    asynchronous = True

    def __init__(self, address: str, case: Case, slack: float) -> None:
        self._level = _LOG.level
        _LOG.setLevel(logging.ERROR)  # the coordinator is killed on purpose
        rule = {"name": case.name, "limit": case.limit, "slack": slack}
        ApiClient(address).request("POST", "/api/v1/budgets", rule)
        self._clients = [countless.connect(address, site=f"site-{site}") for site in range(case.sites)]
        self._budgets = [client.budget(case.name) for client in self._clients]
        self._holds: dict[int, Hold] = {}
        self._wait = WAIT_S

    def take(self, site: int, units: int) -> Outcome:
        decision = self._budgets[site].take(units, wait=self._wait)
        if decision:
            return Outcome.ALLOWED
        return Outcome.REFUSED if decision.reason is Reason.EXHAUSTED else Outcome.UNDECIDED

    def reserve(self, request: Request) -> Outcome:
        try:
            self._holds[request.number] = self._budgets[request.site].reserve(request.units, wait=self._wait)
        except LimitExceeded:
            return Outcome.REFUSED
        except (Starved, Unreachable):
            return Outcome.UNDECIDED
        return Outcome.ALLOWED

    def settle(self, request: Request) -> None:
        self._holds.pop(request.number).settle(request.used)

    def set_away(self, away: bool) -> None:
        self._wait = 0.0 if away else WAIT_S

    def close(self) -> None:
        for client in self._clients:
            client.close()
        _LOG.setLevel(self._level)
