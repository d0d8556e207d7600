"""What a contestant is: a *fleet* of sites that count, and a *backend* that is asked for totals.

They are two objects because they die separately: in a trial one of them is killed. Time is virtual. The player calls
`tick` at multiples of the contestant's period; whatever the real system would do by a timer happens then, through the
real component and real sockets.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import NamedTuple, Self

from race.workloads import Event


class Case(NamedTuple):
    """What all contestants are told before they start."""

    sites: int
    counters: int
    alpha: float = 0.05
    delta: float = 0.05
    folder: str = ""  # where sites may keep files
    silent_after: float = 10.0  # the service's default: an idle site gives a sign of life every three times that


class Bill(NamedTuple):
    """What a run has cost. A message is one that carries counts; replies that only acknowledge it are in the bytes."""

    messages: int
    bytes: int
    signs: int = 0  # messages without counts: a site is still there
    dropped: int = 0  # events that the network lost


News = list[tuple[int, float]]  # (counter, what the system would now answer)


@cache
def name_of(counter: int) -> str:
    """The same for everybody, so that bytes can be compared."""
    return f"hits_{counter}"


class Closing(ABC):
    """Something with sockets or processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""


class Backend(Closing):
    """The central side: a server process and what it knows."""

    address: str  # where fleets find it, also from another process
    targets: tuple[int, ...] = ()  # ports of the fleet, for backends that ask

    def tick(self, now: float) -> News:
        """The server's own timers."""
        return []

    @abstractmethod
    def total(self) -> int:
        """Everything the server knows of, over all counters, exactly."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL, and another process in the same place."""

    @abstractmethod
    def bill(self) -> Bill:
        """What was measured on this side."""


class Fleet(Closing):
    """All sites, in this process, each with its own connection or socket."""

    targets: tuple[int, ...] = ()

    @abstractmethod
    def count(self, event: Event) -> News:
        """An event has happened at a site."""

    def tick(self, now: float) -> None:
        """The sites' own timers."""

    def settle(self) -> None:
        """A pause, in which everything arrives that is under way."""

    @abstractmethod
    def bill(self) -> Bill:
        """What was measured on this side."""


class Contestant(NamedTuple):
    """One way of counting."""

    name: str
    backend: Callable[[Case], Backend]
    fleet: Callable[[str, Case], Fleet]
    period: float  # virtual seconds between ticks
    stand_in: Callable[[str, Case], Fleet] | None = None  # the fleet when the server is killed
    heir: Callable[[str, Case], Fleet] | None = None  # the next process, after the sites were killed
