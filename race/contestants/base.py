"""A contestant: a *fleet* of sites that count, and a *backend* that knows totals.

They are two objects because in a trial one of them is killed. Time is virtual. The player calls `tick` at multiples of
the contestant's period: then everything happens that the real system would do by a timer, through the real component
and real sockets.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import NamedTuple, Self

from race.workloads import Event


class Case(NamedTuple):
    """The parameters of a run, the same for all contestants."""

    sites: int
    counters: int
    alpha: float = 0.05
    delta: float = 0.05
    folder: str = ""  # for the files of sites
    silent_after: float = 10.0  # the service's default: an idle site sends a heartbeat every three times that


class Traffic(NamedTuple):
    """The cost of a run. A message carries counts; a reply that only acknowledges adds to the bytes."""

    messages: int
    bytes: int
    heartbeats: int = 0  # messages without counts
    dropped: int = 0  # events that the network lost


Answers = list[tuple[int, float]]  # (counter, the system's answer)


@cache
def counter_name(counter: int) -> str:
    """The same for all contestants, so that bytes can be compared."""
    return f"hits_{counter}"


class Side:
    """One side of a contestant."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close sockets and stop processes."""

    def traffic(self) -> Traffic:
        """What was measured on this side; nothing if the other side measures it."""
        return Traffic(0, 0)


class Backend(Side, ABC):
    """The server process."""

    address: str  # for fleets, also in another process
    targets: tuple[int, ...] = ()  # ports of the fleet, for backends that scrape

    def tick(self, now: float) -> Answers:
        """The timers of the server; the answers afterwards."""
        return []

    @abstractmethod
    def total(self) -> int:
        """All events that the server knows, over all counters, exactly."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL, and start another process at the same address."""


class Fleet(Side, ABC):
    """All sites, in this process, each with its own connection or socket."""

    targets: tuple[int, ...] = ()

    @abstractmethod
    def count(self, event: Event) -> Answers:
        """Count an event at its site; answers that changed."""

    def tick(self, now: float) -> None:
        """The timers of the sites."""

    def flush(self) -> None:
        """Wait until everything in flight has arrived."""


class Contestant(NamedTuple):
    """One way of counting."""

    name: str
    backend: Callable[[Case], Backend]
    fleet: Callable[[str, Case], Fleet]
    period: float  # virtual seconds between ticks
    restart_fleet: Callable[[str, Case], Fleet] | None = None  # used when the server is killed
    recovery_fleet: Callable[[str, Case], Fleet] | None = None  # the next process, after the sites were killed
