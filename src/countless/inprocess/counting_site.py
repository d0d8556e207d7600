"""What a program has of a site of a `Tracker`."""

from countless.client.local_counter import LocalCounter
from countless.core.messages import SiteName
from countless.inprocess.windows import WindowedSite


class CountingSite:
    """One site of a `Tracker`. With windows, an event belongs to the window that the clock shows.

    A batch, such as `add(250_000)`, counts like that many single events and takes the time of one.
    """

    __slots__ = ("_local", "_name", "add", "inc")

    def __init__(self, name: SiteName, local: LocalCounter | WindowedSite) -> None:
        self._name = name
        self._local = local
        self.add = self.inc = local.add  # the bound method itself: a call in between would double the price of an event

    def __repr__(self) -> str:
        return f"<CountingSite {self._name!r}: {self.count:,} counted>"

    @property
    def count(self) -> int:
        """How many events it has counted."""
        return self._local.count
