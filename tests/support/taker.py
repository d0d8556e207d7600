"""A process that takes units of the budget `tokens`, and can be killed, stopped and cut off."""

from collections.abc import Callable
from typing import Any

from support.service import TIMEOUT_S, Server, python

LIMIT = 1000
RULE: dict[str, Any] = {"name": "tokens", "limit": LIMIT, "slack": 0}
PROGRAM = """
import os, sys, time

real_time, ahead = time.time, float(os.environ.get("CLOCK_IS_AHEAD", 0))
time.time = lambda: real_time() + ahead

import countless

client = countless.connect(site=os.environ["SITE"])
budget = client.budget("tokens")
for line in sys.stdin:
    n, wait = line.split()
    print(budget.take(int(n), wait=float(wait)).reason, budget.remaining, flush=True)
client.close(90)
"""


class Taker:
    """A process that takes what it is told to take."""

    def __init__(self, url: str, name: str, **variables: str) -> None:
        self.process = python(PROGRAM, url, SITE=name, **variables)
        self.remaining = 0  # after the last request
        self.taken = 0

    def take(self, n: int, wait: float = TIMEOUT_S) -> str:
        self.start_taking(n, wait)
        return self.end_taking(n)

    def start_taking(self, n: int, wait: float) -> None:
        assert self.process.stdin is not None
        print(n, wait, file=self.process.stdin, flush=True)

    def end_taking(self, n: int) -> str:
        assert self.process.stdout is not None
        reason, remaining = self.process.stdout.readline().split()
        self.remaining = int(remaining)
        self.taken += n if reason == "allowed" else 0
        return reason

    def take_all(self, wait: float = TIMEOUT_S) -> str:
        """One by one, until one is refused."""
        while (reason := self.take(1, wait)) == "allowed":
            pass
        return reason

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=TIMEOUT_S)

    def close(self) -> None:
        self.process.communicate(timeout=TIMEOUT_S)


StartTaker = Callable[..., Taker]


def usage(server: Server) -> Any:
    return server.reader.request("GET", "/api/v1/budgets/tokens")
