"""A counter as a program holds it: by name, and one for each combination of labels.

A series (a counter with labels) is a counter of its own, named like `requests{route="/a"}`. Label values come from
outside, so their number has a cap: beyond it events are counted in one overflow series, and the total over all series
stays right.
"""

from collections.abc import Callable
from typing import Protocol

from countless.wire.names import overflow_name, series_name, validate_name

LABEL_CAP = 2000


class Countable(Protocol):
    """A `LocalCounter`, or `LocalWindows`."""

    def add(self, n: int = 1) -> None: ...

    @property
    def count(self) -> int: ...


class Counter:
    """A counter. `add` and `inc` never block on the network and never raise because of it.

    With windows, an event belongs to the window that the clock of this process shows.
    """

    __slots__ = ("_cap", "_local", "_local_counter", "_series", "add", "inc", "name", "overflow_count")

    def __init__(self, name: str, local_counter: Callable[[str], Countable], cap: int = LABEL_CAP) -> None:
        self.name = name
        self.overflow_count = 0  # how often `labels` returned the overflow series
        self._local_counter = local_counter
        self._local = local_counter(name)
        self._cap = cap
        self._series: dict[tuple[tuple[str, str], ...], Counter] = {}
        self.add = self._local.add  # the bound method itself: a call in between would double the price of an event
        self.inc = self._local.add

    def __repr__(self) -> str:
        return f"<Counter {self.name!r}: {self.count:,} counted here>"

    @property
    def count(self) -> int:
        """What this process has counted; with windows, in the present one."""
        return self._local.count

    def labels(self, /, **labels: str) -> "Counter":
        """The series with these labels, or the overflow series when there are too many."""
        key = tuple(labels.items())
        series = self._series.get(key)
        return series if series is not None else self._new_series(key)

    def _new_series(self, key: tuple[tuple[str, str], ...]) -> "Counter":
        if not key:
            return self
        ordered = tuple(sorted((name, str(value)) for name, value in key))
        name = validate_name(series_name(self.name, dict(ordered)))
        if ordered not in self._series and len(self._series) >= self._cap:
            self.overflow_count += 1
            ordered, name = ((("", ""),), overflow_name(self.name))
        return self._series.setdefault(ordered, Counter(name, self._local_counter, 0))
