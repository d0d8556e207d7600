"""A contestant of the race for limits: a server, if it has one, and a fleet of sites that decide.

Time is virtual. The player calls `tick` at multiples of the contestant's period: then everything happens that the real
system would do by a timer.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

from race.contestants.base import Side
from race.limits.workloads import Request


class Outcome(StrEnum):
    ALLOWED = "allowed"
    REFUSED = "refused"
    UNDECIDED = "undecided"  # the server did not answer; whether that admits the request is up to the caller


class Case(NamedTuple):
    """The parameters of a run, the same for all contestants."""

    name: str  # of the limit
    sites: int
    limit: int


class Server(Protocol):
    """A process that can be killed and started again."""

    address: str  # ends with the port

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class NoServer:
    """For a contestant that has none."""

    address = "0"

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


class Fleet(Side, ABC):
    """All sites, in this process, each with its own connection."""

    asynchronous = False  # whether messages arrive while no request waits and no timer fires

    @abstractmethod
    def take(self, site: int, units: int) -> Outcome:
        """Decide about units that are spent at once."""

    @abstractmethod
    def reserve(self, request: Request) -> Outcome:
        """Decide about units that are held."""

    @abstractmethod
    def settle(self, request: Request) -> None:
        """The hold of an admitted request ends."""

    def tick(self) -> None:
        """The timers of the sites."""

    def set_away(self, away: bool) -> None:
        """The server was killed, or is back."""


class Contestant(NamedTuple):
    """One way to enforce a limit."""

    name: str
    server: Callable[[], Server]
    fleet: Callable[[str, Case], Fleet]
    period: float | None = None  # virtual seconds between ticks
