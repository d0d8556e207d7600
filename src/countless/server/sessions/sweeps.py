"""Closes windows that have ended, and drops those that are not kept any more."""

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from countless.server.sessions.periodic import Periodic
from countless.server.sessions.session_table import Session, SessionTable

COUNTERS_PER_SLICE = 1000  # looked at in one go
SWEPT_PER_SLICE = 100  # that have something to close: some milliseconds


Windows = TypeVar("Windows", bound=Periodic[Any])


class Owner(Protocol[Windows]):
    """Of counters with windows, or of families: a `CounterRegistry`, or `Families`."""

    @property
    def windowed(self) -> Mapping[str, Windows]: ...

    def close_window(self, counter: Windows, period: int, /) -> None: ...

    def drop_windows(self, counter: Windows, /) -> None: ...


class WindowSweeps(Generic[Windows]):
    """A counter is swept when a window ends, and when a site has left a window that has ended.

    A session that is unreachable and a member of a window that is not kept any more is given to `retire`. Otherwise
    such windows would stay open, and make all later ones incomplete, until an operator removes the session.
    """

    def __init__(
        self,
        owner: Owner[Windows],
        sessions: SessionTable,
        retire: Callable[[Session], None],
        wall_clock: Callable[[], float],
    ) -> None:
        self._owner = owner
        self._sessions = sessions
        self._retire = retire
        self._wall_clock = wall_clock

    def run_in_slices(self) -> Iterator[None]:
        """Yields between slices, for other work of the loop."""
        now, swept = self._wall_clock(), 0
        for number, counter in enumerate(list(self._owner.windowed.values()), start=1):
            if number % COUNTERS_PER_SLICE == 0:
                yield
            if counter.sweep_at <= now:
                self._sweep(counter)
                swept += 1
                if swept % SWEPT_PER_SLICE == 0:
                    yield

    def _sweep(self, counter: Windows) -> None:
        for period in counter.ended():
            self._owner.close_window(counter, period)
        self._owner.drop_windows(counter)
        present = counter.present
        counter.sweep_at = min(
            (counter.calendar.bounds(period)[1] for period in counter.open if period >= present), default=inf
        )
        for site_id in counter.members_before_first():
            counter.sweep_at = -inf  # look again at the next tick
            session = self._sessions.get(site_id)
            if session is not None and session.unreachable:
                self._retire(session)
