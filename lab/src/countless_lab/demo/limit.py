"""The first act of the demo: three gateway processes share a limit, and one of them is killed.

Twice with the same requests: the gateways synchronise with a store every 100 ms, as `sync every 100 ms` of the race
does with Redis, or they share a budget of a real coordinator. Everything is a process, and the kill is SIGKILL; the
100 ms are a turn of requests, so that no result depends on how fast the machine is.
"""

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from countless.client.api import ApiClient
from countless_lab.demo.processes import Processes

BUDGET = "requests"
GATEWAYS, LIMIT = 3, 10_000
TURN = 100  # requests at each gateway in 100 ms
KILLED = 1  # the gateway that is killed, once half of the limit is used


class Shared(NamedTuple):
    """A limit at a moment: how many requests each gateway has admitted."""

    name: str
    admitted: tuple[int, ...]
    killed: bool  # a gateway was, by now

    @property
    def over(self) -> int:
        return sum(self.admitted) - LIMIT


class Gateways(ABC):
    """Gateway processes, and what they share the limit through."""

    name: str

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._gateways = [self._begin(gateway) for gateway in range(GATEWAYS)]
        self._admitted = [0] * GATEWAYS
        self._killed = False

    def turn(self) -> int:
        """Serve the requests of a turn, and return how many were admitted."""
        for process in self._gateways:
            _tell(process, f"serve {TURN}")
        admitted = [self._answer(process) for process in self._gateways]
        self._admitted = [before + n for before, n in zip(self._admitted, admitted, strict=True)]
        return sum(admitted)

    @abstractmethod
    def synchronise(self) -> None:
        """End the turn."""

    def kill(self) -> None:
        self._gateways[KILLED].kill()
        self._gateways[KILLED].wait()
        self._killed = True

    def restart(self) -> None:
        self._gateways[KILLED] = self._begin(KILLED)

    def shared(self) -> Shared:
        return Shared(self.name, tuple(self._admitted), self._killed)

    @abstractmethod
    def _begin(self, gateway: int) -> "subprocess.Popen[str]": ...

    def _answer(self, process: "subprocess.Popen[str]") -> int:
        return int(self._processes.line(process, "a gateway"))


class SyncGateways(Gateways):
    """At the end of a turn each gateway adds its count to the store's total and reads the total, as with INCRBY."""

    name = "sync every 100 ms"

    def __init__(self, processes: Processes) -> None:
        super().__init__(processes)
        self._total = 0

    def _begin(self, gateway: int) -> "subprocess.Popen[str]":
        return self._processes.spawn("countless_lab.demo.gateway", "sync", str(LIMIT))

    def restart(self) -> None:
        super().restart()
        _tell(self._gateways[KILLED], f"total {self._total}")

    def synchronise(self) -> None:
        for process in self._gateways:
            if process.poll() is None:
                _tell(process, "report")
                self._total += self._answer(process)
                _tell(process, f"total {self._total}")


class BudgetGateways(Gateways):
    """With slack 0, so that nothing is left unused, and a state_dir, so that a killed gateway loses nothing."""

    name = "countless"

    def __init__(self, processes: Processes) -> None:
        ApiClient(processes.url).request("POST", "/api/v1/budgets", {"name": BUDGET, "limit": LIMIT, "slack": 0})
        super().__init__(processes)

    def _begin(self, gateway: int) -> "subprocess.Popen[str]":
        site = f"gateway-{gateway + 1}"
        state_dir = f"{self._processes.directory}/{site}"
        return self._processes.spawn(
            "countless_lab.demo.gateway", "countless", self._processes.url, BUDGET, site, state_dir
        )

    def synchronise(self) -> None:
        """A gateway asks by itself, once it has used its share."""


def share_a_limit(processes: Processes) -> Iterator[list[Shared]]:
    """Play until all gateways refuse. Once half of the limit is used, a gateway of each is killed before it reports."""
    both: list[Gateways] = [SyncGateways(processes), BudgetGateways(processes)]
    killed = False
    while sum([each.turn() for each in both]):
        dies = not killed and all(2 * sum(each.shared().admitted) >= LIMIT for each in both)
        for each in both:
            if dies:
                each.kill()
            each.synchronise()
        yield [each.shared() for each in both]
        for each in both:
            if dies:
                each.restart()
        killed = killed or dies


def _tell(process: "subprocess.Popen[str]", line: str) -> None:
    print(line, file=process.stdin, flush=True)
