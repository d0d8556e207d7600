"""The rules that the limits of a program spend from: one that nobody has made would refuse, or admit, everything."""

import logging
from collections.abc import Callable
from shlex import quote
from time import monotonic
from typing import Protocol

from countless.clock import Clock
from countless.errors import AboveLimit, LimitExceeded, Starved, UnknownBudget, Unreachable
from countless.wire.keys import example_of_rule

log = logging.getLogger("countless")


class Reserving(Protocol):
    """A budget, as far as it matters here."""

    def reserve(self, n: int, wait: float) -> "Settling": ...


class Settling(Protocol):
    def settle(self, used: int) -> None: ...


RATE = "--limit N --per minute"  # options of the command that creates a rule
HELD = "--limit N --kind in_flight"


def command_for(rule: str, options: str = RATE) -> str:
    """
    >>> command_for("keys/*")
    "countless budget create 'keys/*' --limit N --per minute"
    """
    return f"countless budget create {quote(rule)} {options}"


class ExpectedRules:
    """Those of one client, until the coordinator was found to have them."""

    def __init__(self) -> None:
        self._missing: dict[str, str] = {}  # and the options of the commands that create them
        self._logged: set[str] = set()

    def add(self, rule: str, options: str) -> None:
        """A limit spends from budgets of this rule, such as `keys/*`."""
        self._missing[rule] = options

    def check(self, budget_of: Callable[[str], Reserving], timeout: float, clock: Clock = monotonic) -> bool:
        """Ask for a unit of each, and return it."""
        deadline, found = clock() + timeout, True
        for rule, options in list(self._missing.items()):
            try:
                budget_of(example_of_rule(rule)).reserve(1, max(0.0, deadline - clock())).settle(0)
            except (Starved, Unreachable):
                return False
            except UnknownBudget as problem:
                found = False
                if rule not in self._logged:
                    self._logged.add(rule)
                    create = command_for(rule, options)
                    log.warning("limit without a rule: rule=%s error=%s; create it: %s", rule, problem, create)
                continue
            except (LimitExceeded, AboveLimit):
                pass  # it is there
            self._missing.pop(rule, None)
        return found
