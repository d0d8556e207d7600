"""What readers see of the windows of a counter: each window, and the total over all of them."""

from enum import StrEnum
from typing import NamedTuple

from countless.core.answer import State
from countless.core.messages import SiteName


class WindowState(StrEnum):
    """How much a window may still change."""

    OPEN = "open"  # it has not ended
    INCOMPLETE = "incomplete"  # it has ended; sites have not finished it, or were lost with events of it
    CLOSED = "closed"  # all its sites have finished it: it is exact


class Window(NamedTuple):
    """The count of one window: lower <= truth <= upper. With lost sites, the truth may be more."""

    period: int  # its number in the counter's calendar
    start: int  # seconds since 1970
    end: int
    lower: float
    estimate: float
    upper: float
    state: WindowState
    lost: int = 0  # sites that ended without saying how much they had counted
    # Sites that have not finished it yet, or an earlier one; while it has not ended, those that cannot be reached.
    waiting: int = 0

    @property
    def exact(self) -> bool:
        return self.lower == self.upper and not self.lost and not self.waiting


class TotalAnswer(NamedTuple):
    """The total over all windows, also those that are not kept any more. It has the fields of an `Answer`.

    The bounds are the sums of the windows' bounds. The estimate never falls, so when a window is closed, `upper` may be
    the estimate of before.
    """

    estimate: float
    lower: float
    upper: float
    alpha: float
    delta: float
    state: State
    round: int  # of the youngest window
    sites: int
    scheme: str
    silent: tuple[SiteName, ...] = ()
